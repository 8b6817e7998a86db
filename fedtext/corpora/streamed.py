"""Corpora of many users, read or made block by block, which can be used from disk."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.corpora.language import LanguageCorpus
from fedtext.corpora.types import RawClient, RawCorpus
from fedtext.corpora.users import Lexicon, Users
from fedtext.text.representation import Words

LARGE = 5_000  # clients from which on texts are kept on disk by default
TENTH = 10  # one text of ten is for validation, and one for test


class StreamedCorpus(LanguageCorpus):
    """Base of corpora for language models with a client for each user, whose texts come block by block.

    A subclass implements ``blocks``, ``lexicon`` and ``source``. Texts are then held in memory, or encoded on disk once
    and read where a client trains or is evaluated. Results are the same.

    Attributes:
        expected: Number of clients if ``clients`` does not say it, for ``storage: auto``.
    """

    expected: ClassVar[int] = LARGE
    storage: Literal["auto", "memory", "disk"] = Field(
        "auto",
        description="where encoded texts are; memory: in every process that trains; disk: in the cache folder, read "
        f"when a client trains or is evaluated; auto: disk from {LARGE:,} clients on; results are the same, but for "
        "audits that leave out test texts on which others train (membership)",
    )

    @model_validator(mode="after")
    def _pages(self) -> Self:
        if self.storage == "disk" and (key := self._whole):
            raise ValueError(f"storage: disk encodes users one after the other, and {key} needs all: set it to memory")
        return self

    @property
    def on_disk(self) -> bool:
        if self.storage == "auto":
            users = getattr(self, "clients", None) or self.expected
            return users >= LARGE and not self._whole
        return self.storage == "disk"

    @property
    def _whole(self) -> str:
        """The key because of which all users' texts are needed at the same time; empty if there is none."""
        if self.text != Words():
            return "text"
        if self.releases:
            return "vocabulary.private"
        if self.secrets:
            return "secrets"
        return "share" if self.share < 1 else ""

    @abstractmethod
    def lexicon(self) -> Lexicon:
        """Return the words that are known before texts are read."""

    @abstractmethod
    def blocks(self, data: Path | None, seed: int, lexicon: Lexicon) -> Iterator[Users]:
        """Yield the texts of all users in a fixed order, block by block.

        Args:
            data: The folder given with --data, if any.
            seed: Seed of everything that is drawn.
            lexicon: Ids of words, to which new words are added.
        """

    @abstractmethod
    def source(self, data: Path | None, seed: int) -> str:
        """Return what identifies the texts. What is encoded on disk is encoded again if it changes.

        Args:
            data: The folder given with --data, if any.
            seed: Seed of everything that is drawn.
        """

    def place(self, data: Path | None, seed: int) -> str:
        """Return the name of the folder of the encoded texts."""
        keys = [self.source(data, seed), self.words, self.min_count, self.max_length, self.sentences, self.validation]
        return f"{self.name}-{hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]}"

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        lexicon = self.lexicon()
        clients: list[RawClient] = []
        for users in self.blocks(data, seed, lexicon):
            clients += users.kept(self.validation).decoded(list(lexicon))
        return RawCorpus(self.name, 0, clients)


def by_time(texts_K: NDArray[np.int64]) -> NDArray[np.int64]:
    """Split texts that are in the order of their dates: the last tenth is for test, the tenth before for validation.

    Args:
        texts_K: Number of texts of each user, at least 3.

    Returns:
        Number of train, validation and test texts, shape (K, 3). Each is at least 1.
    """
    held_K = np.maximum(1, (texts_K + TENTH // 2) // TENTH)
    return np.stack([texts_K - 2 * held_K, held_K, held_K], 1)
