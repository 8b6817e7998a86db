"""The order of the batches, by numpy alone: what fedtext's seeding.generator and training.batches.shuffled draw."""

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def batches(texts: int, size: int, seed: int, round_: int, client: int) -> Iterator[NDArray[np.int64]]:
    """Return the text numbers of each batch of an epoch; rounds count from 1."""
    key = hashlib.blake2b(f"{seed}/batches/{round_}/{client}".encode(), digest_size=8).digest()
    order = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little"))).permutation(texts)
    for start in range(0, texts, size):
        yield order[start : start + size]
