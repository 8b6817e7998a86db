"""Tokens of a text: words of a vocabulary, buckets to which they are hashed, or pieces or byte pairs of a tokenizer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.errors import UserError
from fedtext.schema import Strict, entry
from fedtext.text import byte_pairs, pretrained
from fedtext.text.hashing import hash_texts, letters
from fedtext.text.normalization import normalized
from fedtext.text.stopwords import without_stopwords
from fedtext.text.tokens import PAD, PAD_ID, penn_tokens


class Words(Strict):
    """The most frequent words of all clients. Their counts are summed at the server without protection."""

    name: Literal["words"] = "words"
    units: ClassVar[str] = "words"
    letters: bool = Field(
        False,
        description="whether to keep only the letters a to z, in lower case, as hash does; false: split at blanks",
    )
    treebank: bool = Field(
        False, description="whether to tokenize raw English: lower case, punctuation split from words, numbers kept"
    )
    normalize: bool = Field(
        False,
        description="whether to make characters plain first: Unicode's NFKC, typographic quotation marks, dashes and "
        "ellipses as in ASCII, no characters of zero width, and blanks around punctuation of other scripts",
    )
    stopwords: Literal["keep", "drop"] = Field(
        "keep", description="words such as the, of and it, also with punctuation or capitals"
    )

    @model_validator(mode="after")
    def _one_way_to_part_words(self) -> Self:
        if self.letters and self.treebank:
            raise ValueError("letters leaves no punctuation for treebank to split: leave out one of them")
        return self

    def clean(self, text: str) -> str:
        """Return a text whose words are separated by blanks."""
        text = plain(self, text)
        text = letters(text) if self.letters else penn_tokens(text) if self.treebank else text
        return text if self.stopwords == "keep" else without_stopwords(text)


class Hash(Strict):
    """Hashed words: a row for each bucket of a rolling hash (RR-LDP paper, section 3.2).

    The vocabulary is fixed and public, so clients disclose nothing about their words for it.
    """

    name: Literal["hash"] = "hash"
    units: ClassVar[str] = "buckets"
    # Each bucket is an entry of the vocabulary and a row of the table, whether it occurs or not.
    buckets: int = Field(5_000, ge=1, le=5_000_000, description="number of buckets M")

    def clean(self, text: str) -> str:
        """Return a text of lower-case letters, whose words are separated by blanks."""
        return letters(text)

    def vocabulary(self) -> list[str]:
        """Return <pad>, followed by an entry for each bucket. There is no <unk>."""
        return [PAD, *(f"#{bucket}" for bucket in range(self.buckets))]

    def encode(self, texts: Iterable[str], max_length: int | None) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Encode cleaned texts like ``tokens.encode``; a text without a word becomes one <pad>."""
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
    """Word pieces of a checkpoint's tokenizer (FedeVocab paper, section 4.1).

    There is a row for each of its pieces. A text is enclosed by the special tokens of the tokenizer, [CLS] and [SEP].
    The vocabulary is public, so clients disclose nothing about their words for it.
    """

    name: Literal["pieces"] = "pieces"
    units: ClassVar[str] = "word pieces"
    checkpoint: pretrained.Checkpoint = Field(
        description="a folder, a name on the hub, or an installed package: see model.checkpoint"
    )

    def clean(self, text: str) -> str:
        """Return the text unchanged."""
        return text

    def vocabulary(self) -> list[str]:
        """Return <pad>, which replaces the tokenizer's own, followed by its other pieces in the order of ids."""
        words, pad = pretrained.pieces(self.checkpoint), pretrained.tokenizer(self.checkpoint).pad_token_id
        return [PAD, *(word for number, word in enumerate(words) if number != pad)]

    def encode(self, texts: Iterable[str], max_length: int | None) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Encode texts like ``tokens.encode``. ``max_length`` includes special tokens; a text without pieces becomes
        one <pad>.

        Raises:
            UserError: ``max_length`` has no room for more than the special tokens.
        """
        tokenizer = pretrained.tokenizer(self.checkpoint)
        special = tokenizer.num_special_tokens_to_add()
        if max_length is not None and max_length <= special:
            raise UserError(
                f"corpus.max_length: {max_length} has no room beside the {special} special tokens that the tokenizer "
                f"adds to each text: set it to at least {special + 1}"
            )
        pad = tokenizer.pad_token_id
        if pad is None:
            pad = len(pretrained.pieces(self.checkpoint))  # an id that no piece has
        how = {"truncation": max_length is not None, "max_length": max_length, "verbose": False}
        found, counts = [np.zeros(0, np.int32)], [0]
        given = list(texts)
        for start in range(0, len(given), 1000):  # the Python integers of a whole split would take too much memory
            for ids in tokenizer(given[start : start + 1000], **how)["input_ids"]:
                found.append(np.array(ids or [pad], np.int32))
                counts.append(len(found[-1]))
        ids_T = np.concatenate(found)
        return np.where(ids_T == pad, PAD_ID, ids_T + (ids_T < pad)), np.cumsum(counts)


class BPE(Strict):
    """Byte pairs: those of a checkpoint's tokenizer, or of one that is trained (Sennrich et al. 2016; GPT-2).

    There is a row for each entry of the tokenizer; no word is unknown. A tokenizer that is trained on the clients'
    train texts is a release that no guarantee covers, as a vocabulary of counted words is.
    """

    name: Literal["bpe"] = "bpe"
    units: ClassVar[str] = "byte pairs"
    checkpoint: pretrained.Checkpoint | None = Field(
        None, description="a folder, a name on the hub, or an installed package with a tokenizer; null: one is trained"
    )
    trained_on: str = Field(
        "train",
        description="texts of the tokenizer if there is no checkpoint; train: the clients' train texts, in one place; "
        "or a file of public text, a text in each line, searched as it is written, then in --data",
    )
    size: int = Field(
        8_000, ge=byte_pairs.BYTES, le=1_000_000, description="most entries of a trained tokenizer, 256 bytes and pairs"
    )

    @model_validator(mode="after")
    def _is_trained_or_not(self) -> Self:
        idle = [key for key in ("trained_on", "size") if getattr(self, key) != type(self).model_fields[key].default]
        if self.checkpoint is not None and idle:
            raise ValueError(f"{idle[0]}: the tokenizer of a checkpoint is not trained: leave it out")
        return self

    @property
    def of_clients(self) -> bool:
        """Whether the tokenizer is trained on the clients' texts."""
        return self.checkpoint is None and self.trained_on == "train"

    def clean(self, text: str) -> str:
        """Return the text unchanged."""
        return text


def plain(text_field: Words | Hash | Pieces | BPE, text: str) -> str:
    """Return a text in plain characters if tokens are words and ``normalize`` is set, else unchanged."""
    return normalized(text) if isinstance(text_field, Words) and text_field.normalize else text


if TYPE_CHECKING:
    TextField: TypeAlias = Words | Hash | Pieces | BPE
else:
    TextField = entry(Words, Hash, Pieces, BPE)
