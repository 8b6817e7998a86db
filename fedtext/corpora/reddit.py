"""Comments of reddit, or texts of any other source with authors: a client for each author, or equal shares."""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.corpora.base import first
from fedtext.corpora.comments import Comment, read_comments
from fedtext.corpora.language import LanguageCorpus, Side
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
    order: Literal["seed", "file"] = Field(
        "seed",
        description="how a user's comments (iid: all comments) are split, eight tenths into train and one each into "
        "validation and test; seed: drawn; file: in the order of the file",
    )

    @model_validator(mode="after")
    def _takes_effect(self) -> Self:
        if self.partition == "users" and self.author is None:
            raise ValueError("author: partition: users needs the column of the user: name it, or use partition: iid")
        if self.partition == "iid" and self.min_comments != type(self).model_fields["min_comments"].default:
            raise ValueError("min_comments: partition: iid uses the comments of all users: leave min_comments out")
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
        comments = read_comments(path, self.body, self.author)
        return self._by_user(comments, seed) if self.partition == "users" else self._iid(comments, seed)

    def tokens_of(self, text: str, known: Container[str]) -> str:
        return penn_tokens(text)

    def _by_user(self, comments: Iterable[Comment], seed: int) -> RawCorpus:
        written: dict[str, list[str]] = {}
        for user, text in comments:
            written.setdefault(user, []).append(text)
        ranked = sorted(written.items(), key=lambda item: (-len(item[1]), item[0]))
        users = [texts for _, texts in ranked if len(texts) >= self.min_comments]
        if len(users) < self.clients:
            raise UserError(
                f"corpus.clients: {self.clients} users are needed, but only {len(users)} have at least "
                f"{self.min_comments} comments: lower it or corpus.min_comments"
            )
        digits = len(str(self.clients))
        clients = []
        for number, texts in enumerate(users[: self.clients]):
            splits = self.splits(
                {side: _lines(part) for side, part in self._parted(texts, seed, number).items()}, seed, number
            )
            clients.append(RawClient(f"user-{number + 1:0{digits}}", **splits))
        return RawCorpus(self.name, 0, clients)

    def _iid(self, comments: Iterable[Comment], seed: int) -> RawCorpus:
        parts = self._parted([comment.text for comment in comments], seed)
        return self.dealt({side: _lines(part) for side, part in parts.items()}, seed)

    def _parted(self, texts: list[str], seed: int, client: int = SERVER) -> dict[Side, list[str]]:
        """Split a user's comments, or all: a tenth, but at least one, into validation and as many into test."""
        held = max(1, round(len(texts) / 10))
        cut = max(0, len(texts) - 2 * held)
        order_N: NDArray[np.int64] = np.arange(len(texts))
        if self.order == "seed":
            order_N = generator(seed, "comments", client=client).permutation(order_N)
        parts: dict[Side, NDArray[np.int64]] = {
            "train": order_N[:cut],
            "valid": order_N[cut : cut + held],
            "test": order_N[cut + held :],
        }
        return {side: [texts[i] for i in np.sort(parts[side])] for side in self.sides}


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Return the tokenized lines of the comments."""
    return (penn_tokens(line) for text in texts for line in text.splitlines())
