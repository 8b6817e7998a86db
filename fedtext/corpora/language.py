"""Corpora for language models: sentences without labels, from ``<s>`` to ``</s>``."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from fedtext.corpora.base import CorpusConfig, first
from fedtext.corpora.files import read_lines, read_table
from fedtext.corpora.secrets import Secrets
from fedtext.corpora.shares import deal
from fedtext.corpora.types import RawClient, RawCorpus, Split
from fedtext.errors import UserError
from fedtext.seeding import SERVER, generator
from fedtext.text.representation import BPE, Words
from fedtext.text.tokens import BOS, EOS, sentence_words

Side = Literal["train", "valid", "test"]


class TokenCorpus(CorpusConfig):
    """Base of all corpora for language models: texts from ``<s>`` to ``</s>``, whose next tokens are predicted.

    The label of a text (``Split.labels``) is the number of words after <s> that are given, and not predicted.
    """

    language = True

    @model_validator(mode="after")
    def _words_are_predicted(self) -> Self:
        if self.text != Words() and not isinstance(self.text, BPE):
            raise ValueError(
                "text: a language model predicts words as they are between blanks, or byte pairs, not buckets, "
                "letters or normalized words: leave text out, or use bpe"
            )
        return self

    @field_validator("drop_leaked")
    @classmethod
    def _sentences_repeat(cls, value: str) -> str:
        if value != "none":
            raise ValueError(
                "short sentences repeat in any language, and perplexity is defined on the whole test split: leave "
                "drop_leaked out of a language model's corpus"
            )
        return value


class LanguageCorpus(TokenCorpus):
    """Base of corpora for language models: sentences in lower case (FedAtt paper, section IV-A, and its code).

    The vocabulary consists of words of train alone; the paper's code includes those of validation and test. The word
    <unk> of a text is the <unk> of the vocabulary; <s> and </s> in a text become <unk>.
    """

    segmented = True
    brings_validation = True
    clients: int = Field(100, ge=1, description="number of clients the sentences are split over (FedAtt paper: 100)")
    sentences: Literal["lines", "stops"] = Field(
        "stops",
        description="lines: a line is a sentence; stops: it also ends at each full stop between blanks, which becomes "
        "</s>",
    )
    max_length: int | None = Field(
        100,
        ge=2,
        description="tokens kept of each sentence, with <s> and </s>; a sentence that is cut has no </s>; null: all",
    )
    secrets: Secrets | None = Field(
        None,
        description="sentences with random digits that are planted in train texts, for the audit exposure; null: none",
    )
    validation: float = Field(
        1.0, ge=0.0, le=1.0, description="share of the corpus's validation sentences used for selection"
    )

    @model_validator(mode="after")
    def _secrets_are_whole(self) -> Self:
        if self.secrets and isinstance(self.text, BPE):
            raise ValueError("secrets: their digits are words, and a token of bpe may be several: leave text out")
        if self.secrets and self.max_length is not None and self.secrets.length > self.max_length:
            raise ValueError(
                f"secrets: a sentence has {self.secrets.length} tokens, more than max_length: shorten prefix or "
                "digits, or raise max_length"
            )
        return self

    @property
    def part(self) -> str:
        """The part of a text of the source that is a text here, for the ledger."""
        if self.sentences == "lines":
            return "a line (corpus.sentences: lines)"
        return "a sentence (corpus.sentences: stops), of which a line, such as a paragraph or a comment, may have many"

    @property
    def planted(self) -> str:
        return self.secrets.told() if self.secrets else ""

    def with_planted(self, clients: list[RawClient], seed: int) -> list[RawClient]:
        return self.secrets.plant(clients, seed) if self.secrets else clients

    def planted_words(self, seed: int) -> list[str]:
        return self.secrets.words(seed) if self.secrets else []

    @property
    def sides(self) -> tuple[Side, ...]:
        """The splits that this experiment uses."""
        return ("train", "valid", "test") if self.validation else ("train", "test")

    def _split(self, lines: Iterable[str]) -> Split:
        """Split lines into sentences with <s> and </s>. A sentence without words is left out."""
        texts = [f"{BOS} {' '.join(words)} {EOS}" for line in lines for words in self._sentences(line)]
        return Split(texts, np.zeros(len(texts), np.int64))

    def _sentences(self, line: str) -> Iterator[list[str]]:
        words = sentence_words(line.lower())
        for between, sentence in groupby(words, lambda word: self.sentences == "stops" and word == "."):
            if not between:
                yield list(sentence)

    def sentences_of(self, text: str, tokens: Callable[[str], str]) -> list[list[str]]:
        lines = [tokens(line) for line in text.splitlines()]
        found = [words for line in lines for words in self._sentences(line)]
        ends = self.sentences == "stops" and lines[-1:] and lines[-1].split()[-1:] == ["."]
        return [*found, []] if ends or not found or text.endswith("\n") else found

    def splits(self, lines: Mapping[Side, Iterable[str]], seed: int, client: int = SERVER) -> dict[str, Split]:
        """Split the lines of a client, or of all clients together, into sentences.

        Args:
            lines: Lines by the names of ``sides``.
            seed: Seed of the draw of validation sentences.
            client: Index of the client; by default all clients together.

        Returns:
            Splits by the names of the fields of ``RawClient``.
        """
        names = {"train": "train", "valid": "validation", "test": "test"}
        splits = {names[side]: self._split(lines[side]) for side in self.sides}
        if self.validation < 1 and splits.get("validation"):
            draws = generator(seed, "validation", client=client)
            splits["validation"] = splits["validation"].sample(self.validation, draws)
        return splits

    @property
    def draws_clients(self) -> bool:
        return True

    def dealt(self, lines: Mapping[Side, Iterable[str]], seed: int) -> RawCorpus:
        """Split the lines into sentences and these over the clients, in equal shares."""
        return RawCorpus(self.name, 0, deal(clients=self.clients, seed=seed, **self.splits(lines, seed)))


def find_lines(
    corpus: LanguageCorpus, folders: tuple[str, ...], table: str, file: str, data: Path | None
) -> dict[Side, list[str]] | None:
    """Read the lines of each split, from a Parquet table or from text files.

    Args:
        corpus: The corpus, with the ``sides`` to load.
        folders: Subfolders of a data folder that are searched before the folder itself.
        table: Name of the table, with the columns split and text.
        file: Name of the text files, with {} in place of the split. They are used if there is no table.
        data: The folder given with --data, if any.

    Returns:
        Lines by split; None if there are no such files.

    Raises:
        UserError: A file is missing or empty, or cannot be read.
    """

    def found(name: str) -> Path | None:
        return first([*(f"{folder}/{name}" for folder in folders), name], data)

    if path := found(table):
        return _table_lines(path, corpus.sides)
    paths = {side: found(file.format(side)) for side in corpus.sides}
    lines = {side: read_lines(path) for side, path in paths.items() if path}
    for side in corpus.sides if lines else ():
        if not any(line.strip() for line in lines.get(side, ())):
            raise UserError(f"corpus {corpus.name}: {file.format(side)} is missing or empty: fetch it again")
    return lines or None


def _table_lines(path: Path, sides: tuple[Side, ...]) -> dict[Side, list[str]]:
    table = read_table(path, {"split": "string", "text": "string"})
    rows = list(zip(table["split"].to_pylist(), table["text"].to_pylist(), strict=True))
    lines = {side: [text for split, text in rows if split == side] for side in sides}
    for side in sides:
        if not lines[side]:
            raise UserError(f"{path} has no row whose split is {side!r}: complete it")
    return lines
