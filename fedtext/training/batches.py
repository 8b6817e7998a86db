"""Batches of encoded texts: padded once, drawn by (seed, round, client, epoch), assembled for the engine.

Legend: N texts, B batch, C clients of a stack, T time (the longest text of the batch), S token places, U words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.corpora.types import TokenSet
from fedtext.models.batch import Batch, Here, Words
from fedtext.models.packing import Ints, Packing
from fedtext.runtime.devices import to_device
from fedtext.seeding import generator
from fedtext.training.native_batches import arranged, numbered
from fedtext.training.token_sets import Counting, sets


class Texts:
    """One split of one client's texts as a padded matrix, from which a batch is gathered.

    Args:
        tokens: The texts.
        rows: Number of rows of the client's table.
        pad_to: Length of all texts, whose padding then counts as words; None: each has its own length.
        as_sets: Whether a text is the set of its distinct tokens, ascending.
        task: The client whose texts they are, unless ``tokens`` has tasks.
        counting: The values of tokens in a set (``ModelConfig.counting``).
    """

    def __init__(
        self,
        tokens: TokenSet,
        rows: int,
        pad_to: int | None = None,
        as_sets: bool = False,
        task: int = 0,
        counting: Counting = "binary",
    ) -> None:
        tokens = sets(tokens, rows, counting) if as_sets else tokens
        known = tokens.tokens_T
        assert not len(known) or (known.min() >= 0 and known.max() < rows), "tokens are rows of the client's table"
        lengths_N = np.diff(tokens.offsets).astype(np.int64)
        width = pad_to or int(lengths_N.max(initial=1))
        self.padded_NT = np.zeros((len(tokens), width), np.int32)
        there_NT = np.arange(width) < lengths_N[:, None]
        self.padded_NT[there_NT] = tokens.tokens_T
        self.values_NT: NDArray[np.float32] | None = None
        if tokens.values_T is not None:
            self.values_NT = np.zeros(self.padded_NT.shape, np.float32)
            self.values_NT[there_NT] = tokens.values_T
        self.features_NK, self.bytes_N = tokens.features_NK, tokens.bytes_N
        self.lengths_N = np.full_like(lengths_N, width) if pad_to else lengths_N
        self.labels_N = np.asarray(tokens.labels_N, np.int64)
        self.prompted = tokens.bytes_N is not None and bool(self.labels_N.any())
        self.tasks_N = np.full(len(tokens), task) if tokens.tasks_N is None else tokens.tasks_N
        self.number_R = np.zeros(rows, np.int64)  # scratch of `distinct`

    def __len__(self) -> int:
        return len(self.labels_N)

    def distinct(self, tokens_S: Ints) -> tuple[Ints, Ints]:
        """Return the distinct tokens words_U, ascending, and the index of each token in it. Unlike np.unique, it does
        not sort."""
        self.number_R[tokens_S] = 1
        words_U = np.flatnonzero(self.number_R)
        self.number_R[words_U] = np.arange(len(words_U))
        numbers_S = self.number_R[tokens_S]
        self.number_R[words_U] = 0
        return words_U, numbers_S

    def by_length(self, size: int) -> Iterator[Ints]:
        """Yield the indices of all texts in batches of similar length, for evaluation."""
        order = np.argsort(self.lengths_N, kind="stable")
        for start in range(0, len(order), size):
            yield order[start : start + size]


@dataclass(frozen=True)
class Assembler:
    """Makes batches for an engine.

    Attributes:
        directions: Directions of the recurrent layers; None for engine ``reference``.
        cut: Whether the loss receives only the rows of the batch's words instead of the table. Tokens are then indices
            of these rows.
        device: The torch device.
        engine: The engine.
        ahead: Whether it is for language models, whose inputs do not include a text's last token.
    """

    directions: int | None
    cut: bool
    device: torch.device
    engine: str = "cells"
    ahead: bool = False

    def single(self, texts: Texts, chosen_B: Ints) -> tuple[Batch, list[Ints]]:
        """Make a batch of one client's texts.

        Args:
            texts: The texts.
            chosen_B: Indices of the texts in the batch.

        Returns:
            The batch, and the rows of its words in the client's table; an empty list if it does not know them.
        """
        if self.engine == "native" and (self.cut or self.directions is not None):
            return self._native(texts, chosen_B)
        if self.directions is None:
            return self._plain(texts, chosen_B), []
        stacked, words = self.packed([(texts, chosen_B)])
        assert stacked.words is not None
        numbers = replace(stacked.words, word_S=stacked.words.word_S[0])
        if not self.cut:
            return replace(self._plain(texts, chosen_B), words=replace(numbers, rows_U=self._on(words[0]))), words
        return Batch(stacked.tokens_BT[0], stacked.lengths_B[0], stacked.labels_B[0], numbers, stacked.task), words

    def _native(self, texts: Texts, chosen_B: Ints) -> tuple[Batch, list[Ints]]:
        """Make the same batch with the functions of native_batches.py."""
        lengths_B = texts.lengths_N[chosen_B] - int(self.ahead)
        assert not self.ahead or lengths_B.min() > 0, "a sentence has at least two tokens, <s> and </s>"
        assert self.directions is None or lengths_B.min() > 0, "a text has at least one token"
        words_U, numbers_BT, numbers_S = numbered(texts.padded_NT, chosen_B, lengths_B, texts.number_R)
        words = None if self.directions is None else arranged(numbers_BT, lengths_B, self.directions)
        if not self.cut:
            assert words is not None
            words = replace(words, rows_U=torch.from_numpy(words_U))
            return replace(self._plain(texts, chosen_B), words=words), [words_U]
        values_BT = None if texts.values_NT is None else texts.values_NT[chosen_B, : numbers_BT.shape[1]]
        batch = Batch(
            torch.from_numpy(numbers_BT),
            torch.from_numpy(lengths_B),
            torch.from_numpy(texts.labels_N[chosen_B]),
            words,
            int(texts.tasks_N[chosen_B[0]]),
            None if values_BT is None else torch.from_numpy(values_BT),
            None if texts.features_NK is None else torch.from_numpy(texts.features_NK[chosen_B]),
            Here(numbers_BT, lengths_B, values_BT, numbers_S),
            native=True,
        )
        return batch, [words_U]

    def _plain(self, texts: Texts, chosen_B: Ints) -> Batch:
        lengths_B = texts.lengths_N[chosen_B]
        longest = int(lengths_B.max())
        padded_BT = texts.padded_NT[chosen_B, :longest]
        labels_B, task = texts.labels_N[chosen_B], int(texts.tasks_N[chosen_B[0]])
        values_BT = None if texts.values_NT is None else texts.values_NT[chosen_B, :longest]
        features_BK = None if texts.features_NK is None else self._on(texts.features_NK[chosen_B])
        return Batch(
            self._on(padded_BT),
            self._on(lengths_B),
            self._on(labels_B),
            task=task,
            values_BT=None if values_BT is None else self._on(values_BT),
            features_BK=features_BK,
            origin=Here(padded_BT, lengths_B, values_BT),
            native=self.engine == "native",
            prompted=self.ahead and texts.prompted,
        )

    def packed(self, picks: Sequence[tuple[Texts, Ints]]) -> tuple[Batch, list[Ints]]:
        """Make a batch of each of C clients, all of the same size.

        Args:
            picks: Texts of each client, and the indices of those in the batch.

        Returns:
            A batch of tensors with a leading axis C, whose tokens are indices of the distinct words of each client's
            batch; and the rows of these words in each client's table.
        """
        assert self.directions is not None
        lengths_CB = np.stack([texts.lengths_N[chosen] for texts, chosen in picks]) - int(self.ahead)
        assert lengths_CB.min() > 0, "a sentence has at least two tokens, <s> and </s>"
        packing = Packing.of(lengths_CB, self.directions, self.device, self.engine)
        word_CS = np.zeros(packing.places.text_CS.shape, np.int64)
        numbers_CBT = np.zeros((*lengths_CB.shape, len(packing.sizes_T)), np.int64)
        words = []
        for client, (texts, chosen) in enumerate(picks):
            real_S = np.flatnonzero(packing.places.text_CS[client] < len(chosen))
            text_S, step_S = packing.places.text_CS[client, real_S], packing.places.step_S[real_S]
            words_U, numbers_S = texts.distinct(texts.padded_NT[chosen[text_S], step_S])
            word_CS[client, real_S] = numbers_S
            numbers_CBT[client, text_S, step_S] = numbers_S
            words.append(words_U)
        labels_CB = np.stack([texts.labels_N[chosen] for texts, chosen in picks])
        source_P = packing.source(word_CS, max(len(words_U) for words_U in words))
        batch = Batch(
            self._on(numbers_CBT),
            self._on(lengths_CB),
            self._on(labels_CB),
            Words(None, self._on(word_CS), source_P, packing),
            int(picks[0][0].tasks_N[picks[0][1][0]]),
            native=self.engine == "native",
        )
        return batch, words

    def _on(self, values: NDArray) -> Tensor:
        return to_device(values, self.device)


def shuffled(
    texts: int, size: int, epochs: int, seed: int, round_: int, client: int, purpose: str = "batches"
) -> Iterator[Ints]:
    """Yield the indices of the texts in each batch of each epoch. The last batch of an epoch may be smaller.

    Args:
        texts: Number of texts.
        size: Number of texts in a batch.
        epochs: Number of epochs.
        seed, round_, client, purpose: What the order is drawn from.
    """
    rng = generator(seed, purpose, round_, client)
    for _ in range(epochs):
        order = rng.permutation(texts)
        for start in range(0, texts, size):
            yield order[start : start + size]


def by_task(tasks_N: Ints, size: int, epochs: int, seed: int, round_: int, client: int) -> Iterator[Ints]:
    """Yield the same for batches of one task: each task's texts are shuffled and split, then batches are shuffled.

    Args:
        tasks_N: The task of each text.
        size, epochs, seed, round_, client: As in ``shuffled``.
    """
    rng = generator(seed, "batches", round_, client)
    for _ in range(epochs):
        batches = []
        for task in np.unique(tasks_N):
            order = rng.permutation(np.flatnonzero(tasks_N == task))
            batches += [order[start : start + size] for start in range(0, len(order), size)]
        yield from (batches[number] for number in rng.permutation(len(batches)))


def part(texts: int, which: Literal["all", "support", "query"], seed: int, client: int) -> Ints:
    """Return the indices of a phase's texts (``Phase.texts``). A client with a single text has it in both halves.

    Args:
        texts: Number of texts.
        which: All of them, or one of two halves.
        seed, client: What the halves are drawn from.
    """
    if which == "all" or texts == 1:
        return np.arange(texts)
    drawn = generator(seed, "support and query", client=client).permutation(texts)
    support = texts // 2
    return np.sort(drawn[:support] if which == "support" else drawn[support:])
