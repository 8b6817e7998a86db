"""The federated StackOverflow corpus: sentences of a file with a user, a date and perhaps a split."""

from collections.abc import Iterable, Iterator, Set
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedtext.corpora.stackoverflow_files import Columns, Sentence, User, files_of, read_users
from fedtext.corpora.streamed import StreamedCorpus, by_time
from fedtext.corpora.users import Lexicon, Users, encoded
from fedtext.errors import UserError, option
from fedtext.runtime.folders import folders, located
from fedtext.text.tokens import BOS, EOS

BLOCK = 200  # users that are encoded together
Splits = tuple[list[list[str]], list[list[str]], list[list[str]]]


class StackOverflowCorpus(StreamedCorpus):
    """StackOverflow: questions and answers by user, for language models (the federated corpus of TensorFlow).

    Read from the published ``stackoverflow.sqlite``, from ``stackoverflow_train.h5`` with ``stackoverflow_test.h5``
    beside it, or from a Parquet table with a sentence in each row. Sentences of a user are used in the order of their
    dates.

    The published test split has the same users at later dates. Its held-out users are not used: a user without train
    sentences is no client. Validation sentences are the latest tenth of a user's train sentences.
    """

    name: Literal["stackoverflow"] = "stackoverflow"
    path: str = Field(
        "stackoverflow.sqlite",
        description="the file, in the data folder or by its path: .sqlite, .h5 or .parquet",
    )
    clients: int = Field(0, ge=0, description="number of users who are clients, the first ones of the file; 0: all")
    sentences: Literal["lines", "stops"] = Field(
        "lines",
        description="lines: a row is a sentence; stops: it also ends at each full stop between blanks, which becomes "
        "</s>",
    )
    test: Literal["published", "latest"] = Field(
        "published",
        description="test sentences; published: those of the file's split test; latest: the latest tenth of a user's "
        "train sentences, and validation the tenth before",
    )
    most: int = Field(
        256, ge=3, description="most sentences of a user, the earliest ones, of train and validation, and of test"
    )
    vocabulary: int = Field(10_000, ge=1, description="most frequent words kept, by summed client counts of train")
    max_length: int | None = Field(
        22,
        ge=2,
        description="tokens kept of each sentence, with <s> and </s>; a sentence that is cut has no </s>; null: all",
    )
    user: str = Field("client_id", description="column of the user, of a .parquet, whose rows are sorted by it")
    tokens: str = Field("tokens", description="column of the sentence, of a .parquet")
    date: str = Field("creation_date", description="column of the date, of a .parquet: texts that sort, or times")
    split: str = Field(
        "split", description="column of the split, of a .parquet: train, test or another, which is not read"
    )

    def clients_of(self, seed: int) -> Set[str]:
        return {f"{self.name} {Path(self.path).name}"}

    def lexicon(self) -> Lexicon:
        return Lexicon()

    def source(self, data: Path | None, seed: int) -> str:
        # The first word is another one whenever a file is read in another way.
        keys = ["tenths of users", self.clients, self.test, self.most, self.user, self.tokens, self.date, self.split]
        files = [(path.resolve().as_posix(), path.stat()) for path in files_of(self._file(data), self._columns)]
        return repr([*(each for name, stat in files for each in (name, stat.st_size, stat.st_mtime_ns)), *keys])

    @property
    def _columns(self) -> Columns:
        return Columns(self.user, self.tokens, self.date, self.split, self.test == "published")

    def blocks(self, data: Path | None, seed: int, lexicon: Lexicon) -> Iterator[Users]:
        users = self._used(read_users(self._file(data), self._columns))
        chosen = islice(users, self.clients or None)
        found = 0
        while block := list(islice(chosen, BLOCK)):
            found += len(block)
            yield encoded([name for name, _ in block], (splits for _, splits in block), lexicon)
        if not found:
            least = "3 train sentences" if self.test == "latest" else "2 train sentences, whose split is 'train'"
            raise UserError(f"corpus.path: {self._file(data)} has no user with {least}: complete it")
        if found < self.clients:
            raise UserError(
                f"corpus.clients: {self.clients} users are needed, and {self._file(data)} has {found} with enough "
                "train sentences: lower it"
            )

    def _file(self, data: Path | None) -> Path:
        names, key = (self.path, f"stackoverflow/{self.path}"), "corpus.path"
        path = next((found for name in names if (found := located(name, folders(data), key))), None)
        if path is None or not path.is_file():
            raise UserError(
                f"corpus.path: no {self.path}, in a folder stackoverflow or not, in "
                f"{' or '.join(map(str, folders(data)))}: correct it, or give its folder with "
                f"{option('data', 'FOLDER')} or $FEDTEXT_DATA"
            )
        return path

    def _used(self, users: Iterable[User]) -> Iterator[tuple[str, Splits]]:
        """Yield the users with enough train sentences, and their sentences of each split by date."""
        for user in users:
            train = self._by_date(user.sentences, "train")
            if self.test == "latest" and len(train) >= 3:
                fit, validation, _ = by_time(np.array([len(train)]))[0].tolist()
                yield user.name, (train[:fit], train[fit : fit + validation], train[fit + validation :])
            elif self.test == "published" and len(train) >= 2:
                validation = int(by_time(np.array([len(train)]))[0, 1])
                test = self._by_date(user.sentences, "test")
                yield user.name, (train[:-validation], train[-validation:], test)

    def _by_date(self, sentences: Iterable[Sentence], split: str) -> list[list[str]]:
        """Return the sentences of a split, each from <s> to </s>."""
        there = sorted((sentence for sentence in sentences if sentence.split == split), key=lambda each: each.date)
        found = ([BOS, *words, EOS] for sentence in there for words in self._sentences(sentence.text))
        return list(islice(found, self.most))
