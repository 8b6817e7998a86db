"""Tokens of a text: its words, by a vocabulary that clients agree on, the buckets its words are hashed to, or the
pieces that a checkpoint's tokenizer cuts it into."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.schema import Strict, entry
from fedtext.text import pretrained
from fedtext.text.hashing import hash_texts, letters
from fedtext.text.stopwords import without_stopwords
from fedtext.text.tokens import PAD, PAD_ID, penn_tokens


class Words(Strict):
    """The most frequent words of all clients. Their counts are summed at the server without protection."""

    name: Literal["words"] = "words"
    units: ClassVar[str] = "words"
    letters: bool = Field(False, description="read a to z in lower case alone, as hash does; false: split at blanks")
    treebank: bool = Field(False, description="raw English: lower case, punctuation split from words, numbers stay")
    stopwords: Literal["keep", "drop"] = Field("keep", description="the, of, it, ...: whatever punctuation or capitals")

    @model_validator(mode="after")
    def _one_way_to_part_words(self) -> Self:
        if self.letters and self.treebank:
            raise ValueError("letters leaves no punctuation for treebank to split: leave out one of them")
        return self

    def clean(self, text: str) -> str:
        text = letters(text) if self.letters else penn_tokens(text) if self.treebank else text
        return text if self.stopwords == "keep" else without_stopwords(text)


class Hash(Strict):
    """Hashed words: a row for each bucket of a rolling hash (RR-LDP paper, section 3.2).

    A row of the table for each bucket. The vocabulary is fixed and
    public, and nothing about a client's words leaves it."""

    name: Literal["hash"] = "hash"
    units: ClassVar[str] = "buckets"
    # Each is a word of the vocabulary and a row of the table, occurring or not: more fill a machine's memory.
    buckets: int = Field(5_000, ge=1, le=5_000_000, description="M")

    def clean(self, text: str) -> str:
        return letters(text)

    def vocabulary(self) -> list[str]:
        """<pad>, then a row for each bucket, whether it occurs or not. There is no <unk>."""
        return [PAD, *(f"#{bucket}" for bucket in range(self.buckets))]

    def encode(self, texts: Iterable[str], max_length: int | None) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Like tokens.encode, of cleaned texts; a text without a word becomes one <pad>."""
        tokens_T, offsets = hash_texts(texts, self.buckets)
        lengths_N = np.diff(offsets)
        rows_T = np.insert(tokens_T + 1, offsets[:-1][lengths_N == 0], PAD_ID)
        lengths_N = np.maximum(lengths_N, 1)
        if max_length is not None:
            ends_N = np.cumsum(lengths_N)
            rows_T = rows_T[np.arange(len(rows_T)) - np.repeat(ends_N - lengths_N, lengths_N) < max_length]
            lengths_N = np.minimum(lengths_N, max_length)
        return rows_T, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N)])


class Pieces(Strict):
    """Word pieces of a checkpoint's own tokenizer (FedeVocab paper, section 4.1).

    FedeVocab paper, section 4.1: the word pieces of a checkpoint's own tokenizer, a row for each that it knows. A
    text stands between the special tokens of the tokenizer, [CLS] and [SEP]. The vocabulary is public, and
    nothing about a client's words leaves it."""

    name: Literal["pieces"] = "pieces"
    units: ClassVar[str] = "word pieces"
    checkpoint: pretrained.Checkpoint = Field(
        description="a folder, a name on the hub, or an installed package: see model.checkpoint"
    )

    def clean(self, text: str) -> str:
        return text

    def vocabulary(self) -> list[str]:
        """<pad>, in the place of the tokenizer's own, then its other pieces in the order of their ids."""
        words, pad = pretrained.pieces(self.checkpoint), pretrained.tokenizer(self.checkpoint).pad_token_id
        return [PAD, *(word for number, word in enumerate(words) if number != pad)]

    def encode(self, texts: Iterable[str], max_length: int | None) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Like tokens.encode, special tokens among the ``max_length``; a text of which nothing is left becomes one
        <pad>."""
        tokenizer = pretrained.tokenizer(self.checkpoint)
        pad = len(tokenizer) if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        how = {"truncation": max_length is not None, "max_length": max_length, "verbose": False}
        found, counts = [np.zeros(0, np.int32)], [0]
        given = list(texts)
        for start in range(0, len(given), 1000):  # as lists of Python's numbers a whole split would fill the memory
            for ids in tokenizer(given[start : start + 1000], **how)["input_ids"]:
                found.append(np.array(ids or [pad], np.int32))
                counts.append(len(found[-1]))
        ids_T = np.concatenate(found)
        return np.where(ids_T == pad, PAD_ID, ids_T + (ids_T < pad)), np.cumsum(counts)


if TYPE_CHECKING:
    TextField: TypeAlias = Words | Hash | Pieces
else:
    TextField = entry(Words, Hash, Pieces)
