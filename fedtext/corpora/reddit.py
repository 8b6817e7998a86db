"""Comments of reddit, or texts of any other source with authors: a client for each author, or equal shares."""

import html
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.corpora.base import first
from fedtext.corpora.comments import Comment, read_comments
from fedtext.corpora.language import LanguageCorpus, Side
from fedtext.corpora.times import Time, seconds_of
from fedtext.corpora.types import RawClient, RawCorpus
from fedtext.errors import UserError, option
from fedtext.runtime.folders import folders, located
from fedtext.runtime.paths import expanded, is_uri
from fedtext.seeding import SERVER, generator
from fedtext.text.tokens import penn_tokens


class RedditCorpus(LanguageCorpus):
    """Reddit: comments for language models; each client is a user (FedAtt paper).

    Read from one file with a comment in each row. FedAtt's paper uses one comment in a thousand of May 2015, which is
    not published, in equal shares (``partition: iid``); here the authors are the clients.

    These are the users with most comments, in this order; their names are not used. The most active users may be
    programs: remove these from the file. Comments are raw text and are tokenized like the Penn Treebank. A line break
    ends a sentence. Deleted comments, and those of deleted accounts, are dropped.

    With the column of their ``date`` a user's comments are in the order of time (``order: date``), and months can be
    selected: ``since`` and ``until`` bound the comments that are used, and those from ``test_from`` on are for test.
    """

    name: Literal["reddit"] = "reddit"
    file: str = Field(
        "reddit.jsonl",
        description="file of comments, in the data folder or by its whole path: .parquet, .csv, .json or JSON lines",
    )
    body: str = Field("body", description="column of the comment")
    author: str | None = Field("author", description="column of the user; null: none, for partition: iid")
    partition: Literal["users", "iid"] = Field(
        "users", description="users: each client is a user; iid: the sentences of all comments in equal shares"
    )
    min_comments: int = Field(10, ge=3, description="least number of comments of a user who becomes a client")
    order: Literal["seed", "file", "date"] = Field(
        "seed",
        description="how a user's comments (iid: all comments) are split, eight tenths into train and one each into "
        "validation and test; seed: drawn; file: in the order of the file; date: in the order of their dates",
    )
    date: str | None = Field(
        None,
        description="column of the date: seconds since 1970, such as created_utc, or ISO 8601, in UTC if no zone is "
        "given; null: dates are not read",
    )
    since: Time | None = Field(None, description="only comments from this date on, such as 2015-05-01; null: all")
    until: Time | None = Field(None, description="only comments before this date; null: all")
    test_from: Time | None = Field(
        None,
        description="with order: date, all comments from this date on are for test, and of those before it the latest "
        "tenth for validation; null: tenths",
    )

    @model_validator(mode="after")
    def _takes_effect(self) -> Self:
        if self.partition == "users" and self.author is None:
            raise ValueError("author: partition: users needs the column of the user: name it, or use partition: iid")
        if self.partition == "iid" and self.min_comments != type(self).model_fields["min_comments"].default:
            raise ValueError("min_comments: partition: iid uses the comments of all users: leave min_comments out")
        return self

    @model_validator(mode="after")
    def _dated(self) -> Self:
        times = {key: seconds_of(value) for key in ("since", "test_from", "until") if (value := getattr(self, key))}
        if self.date is None and (times or self.order == "date"):
            raise ValueError(f"{next(iter(times), 'order')}: it needs the column of the date: name it with date")
        if self.date is not None and not times and self.order != "date":
            raise ValueError("date: nothing reads the column: set order: date, since or until, or leave it out")
        if self.test_from and self.order != "date":
            raise ValueError("test_from: comments are split by their dates: set order: date, or leave test_from out")
        for (before, low), (after, high) in pairwise(times.items()):
            if low >= high:
                raise ValueError(f"{after}: it has to be later than {before}: correct one of them")
        return self

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        if is_uri(self.file):
            path = located(self.file, [], "corpus.file")
        else:
            path = first([str(expanded(self.file, "corpus.file")), f"reddit/{self.file}"], data)
        if path is None:
            raise UserError(
                f"corpus.file: no {self.file}, in a folder reddit or not, in {' or '.join(map(str, folders(data)))}: "
                f"correct it, or give its folder with {option('data', 'FOLDER')} or $FEDTEXT_DATA"
            )
        comments = self._selected(read_comments(path, self.body, self.author, self.date))
        return self._by_user(comments, seed) if self.partition == "users" else self._iid(comments, seed)

    def tokens_of(self, text: str, known: Container[str]) -> str:
        return penn_tokens(html.unescape(text))

    def _selected(self, comments: Iterable[Comment]) -> Iterator[Comment]:
        """Yield the comments from ``since`` on and before ``until``."""
        start = seconds_of(self.since) if self.since else -math.inf
        end = seconds_of(self.until) if self.until else math.inf
        return (comment for comment in comments if start <= comment.time < end)

    def _by_user(self, comments: Iterable[Comment], seed: int) -> RawCorpus:
        written: dict[str, list[Comment]] = {}
        for comment in comments:
            written.setdefault(comment.user, []).append(comment)
        ranked = sorted(written.items(), key=lambda item: (-len(item[1]), item[0]))
        users = [theirs for _, theirs in ranked if len(theirs) >= self.min_comments and self._splits(theirs)]
        if len(users) < self.clients:
            split = f", two of them before {self.test_from} and one after (corpus.test_from)" if self.test_from else ""
            raise UserError(
                f"corpus.clients: {self.clients} users are needed, but only {len(users)} have at least "
                f"{self.min_comments} comments{split}: lower it or corpus.min_comments"
            )
        digits = len(str(self.clients))
        clients = []
        for number, theirs in enumerate(users[: self.clients]):
            splits = self.splits(
                {side: _lines(part) for side, part in self._parted(theirs, seed, number).items()}, seed, number
            )
            clients.append(RawClient(f"user-{number + 1:0{digits}}", **splits))
        return RawCorpus(self.name, 0, clients)

    def _iid(self, comments: Iterable[Comment], seed: int) -> RawCorpus:
        found = list(comments)
        if not self._splits(found):
            raise UserError(
                f"corpus.test_from: {self.test_from} leaves no two comments before it, or none after it: correct it"
            )
        parts = self._parted(found, seed)
        return self.dealt({side: _lines(part) for side, part in parts.items()}, seed)

    def _tested(self, comments: Sequence[Comment]) -> int:
        """Return how many of the comments are for test: a tenth, but at least one, or those from ``test_from`` on."""
        if self.test_from is None:
            return max(1, round(len(comments) / 10))
        start = seconds_of(self.test_from)
        return sum(comment.time >= start for comment in comments)

    def _splits(self, comments: Sequence[Comment]) -> bool:
        """Return whether ``test_from`` leaves comments to train on, to validate with and to test on."""
        return self.test_from is None or 1 <= self._tested(comments) <= len(comments) - 2

    def _parted(self, comments: Sequence[Comment], seed: int, client: int = SERVER) -> dict[Side, list[str]]:
        """Split a user's comments, or all, into train, validation and test, each in the order of the file or dates."""
        tested = self._tested(comments)
        held = tested if self.test_from is None else max(1, round((len(comments) - tested) / 10))
        fitted = max(0, len(comments) - tested - held)
        if self.order == "date":
            comments = sorted(comments, key=lambda comment: comment.time)
        order_N: NDArray[np.int64] = np.arange(len(comments))
        if self.order == "seed":
            order_N = generator(seed, "comments", client=client).permutation(order_N)
        parts: dict[Side, NDArray[np.int64]] = {
            "train": order_N[:fitted],
            "valid": order_N[fitted : fitted + held],
            "test": order_N[fitted + held :],
        }
        return {side: [comments[i].text for i in np.sort(parts[side])] for side in self.sides}


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Return the tokenized lines of the comments."""
    return (penn_tokens(line) for text in texts for line in text.splitlines())
