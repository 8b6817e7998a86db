"""Encoded texts as batches: padded once, drawn by (seed, round, client, epoch).

Legend: N texts, B batch, T time (the longest text of the batch).
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.corpora.types import TokenSet
from fedtext.methods.base import Batch
from fedtext.seeding import generator


class Texts:
    """One split of one client, kept as a single padded matrix: a batch is one gather."""

    def __init__(self, tokens: TokenSet, device: torch.device, pad_to: int | None = None) -> None:
        lengths_N = np.diff(tokens.offsets)
        width = pad_to or int(lengths_N.max(initial=1))
        padded_NT = np.zeros((len(tokens), width), np.int32)
        padded_NT[np.arange(width) < lengths_N[:, None]] = tokens.tokens_T
        self.padded_NT = torch.from_numpy(padded_NT).to(device)
        self.lengths_N = torch.from_numpy(lengths_N.astype(np.int64))  # packing wants them on the CPU
        self.labels_N = torch.from_numpy(np.asarray(tokens.labels_N, np.int64)).to(device)
        self.full_width = pad_to is not None

    def __len__(self) -> int:
        return len(self.labels_N)

    def batch(self, chosen_B: NDArray[np.int64]) -> Batch:
        index = torch.from_numpy(chosen_B)
        lengths_B = self.lengths_N[index]
        width = self.padded_NT.shape[1] if self.full_width else int(lengths_B.max())
        on_device = index.to(self.labels_N.device)
        return Batch(self.padded_NT[on_device, :width], lengths_B.to(on_device.device), self.labels_N[on_device])

    def by_length(self, size: int) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
        """Every text once in batches of similar length, for evaluation: (batch, its texts' numbers)."""
        order = np.argsort(self.lengths_N.numpy(), kind="stable")
        for start in range(0, len(order), size):
            yield self.batch(order[start : start + size]), order[start : start + size]


def shuffled(texts: int, size: int, epochs: int, seed: int, round_: int, client: int) -> Iterator[NDArray[np.int64]]:
    """Text numbers of each batch of each epoch; the last batch of an epoch may be smaller."""
    rng = generator(seed, "batches", round_, client)
    for _ in range(epochs):
        order = rng.permutation(texts)
        for start in range(0, texts, size):
            yield order[start : start + size]
