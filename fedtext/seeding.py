"""Every random draw comes from (seed, purpose, round, client).

No generator lives longer than one purpose of one client in one round, so a result cannot depend on which actor drew
first, on how clients are packed, or on whether a run was interrupted.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

SERVER = -1  # the "client" of draws made by the server or by all alike


def derive(seed: int, purpose: str, round_: int = 0, client: int = SERVER) -> int:
    """A 64-bit seed for one purpose; any change of any argument gives an unrelated one."""
    key = f"{seed}/{purpose}/{round_}/{client}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def generator(seed: int, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:
    """A fresh counter-based numpy generator for one purpose."""
    return np.random.Generator(np.random.Philox(key=derive(seed, purpose, round_, client)))


@contextmanager
def torch_scope(seed: int, purpose: str, round_: int = 0, client: int = SERVER) -> Iterator[None]:
    """Within the block torch's own generators (initialisation, dropout) are seeded for this purpose; afterwards they
    are as they were before, so nothing leaks from one client into the next."""
    with torch.random.fork_rng():
        # where there is no GPU torch.manual_seed does the same, and notes down a stack trace for each call
        seeded = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
        seeded(derive(seed, purpose, round_, client) & (2**63 - 1))
        yield
