"""The keys of corpora that are tables of the user, and how their rows are read."""

from abc import abstractmethod
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.table_parts import Part, parts_of
from fedtext.corpora.table_rows import Rows
from fedtext.corpora.table_values import named_splits
from fedtext.corpora.types import RawClient
from fedtext.errors import UserError

if TYPE_CHECKING:
    import pyarrow

TEST = 0.2  # share of test texts if split: auto finds no column
LEVELS = ("label",)  # columns of the folders of text files, unless others are named


class TableKeys(CorpusConfig):
    """Base of corpora that are tables. A subclass implements ``columns``."""

    path: tuple[str, ...] = Field(
        min_length=1,
        description="file, folder or name on the hub, or a list of these; searched as it is written, then in --data",
    )
    client: str | None = Field(
        None, description="column of the clients; null: texts are split by corpus.clients and corpus.partition"
    )
    split: float | str = Field(
        "auto",
        description="column of the splits, whose values are train, test, validation (valid, val, dev) and unlabeled; "
        "or the share of test texts of each client, between 0 and 1, drawn from the seed; auto: the column split if "
        "there is one, else 0.2",
    )
    missing: Literal["refuse", "drop"] = Field(
        "refuse", description="rows without a text, label, client or split: refuse the table, or leave them out"
    )
    min_texts: int = Field(
        1, ge=1, description="least number of labelled texts of a client, others are left out; only with client"
    )

    @property
    def draws_clients(self) -> bool:
        return self.client is None

    def clients_of(self, seed: int) -> Set[str]:
        of = " ".join(super().clients_of(seed)) if self.draws_clients else f"{self.name} {self.client}"
        # A file may be written in several ways, relative to the working folder or to --data.
        return {f"{of} {Path(path).name}" for path in self.path}

    @property
    @abstractmethod
    def columns(self) -> dict[str, str]:
        """The name of the column for each key that names one, but client and split."""

    @property
    def levels(self) -> tuple[str, ...]:
        """The column for each level of a folder of .txt files."""
        return LEVELS

    def written(self, key: str) -> str:
        """Return the key by which the column of ``columns[key]`` was given."""
        return key

    @field_validator("path", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("split")
    @classmethod
    def _is_a_share(cls, value: float | str) -> float | str:
        if isinstance(value, float) and not 0 < value < 1:
            raise ValueError(f"{value:g} is not a share of test texts: give a number between 0 and 1, or a column")
        return value

    @property
    def unlabeled(self) -> Literal["none", "local", "remote"]:
        return "local" if isinstance(self.split, str) else "none"

    @property
    def what(self) -> str:
        """The name of the table in messages."""
        return ", ".join(self.path)

    def table(self, data: Path | None) -> "pyarrow.Table":
        """Read the complete rows, with a column of strings for each key: those of ``columns``, client, split.

        Args:
            data: The folder given with --data, if any.

        Raises:
            UserError: There is no such table or column, a row lacks a value, or there is no row.
        """
        import pyarrow

        parts = parts_of(self.path, self.levels, data)
        if self.levels != LEVELS and not any(part.rows for part in parts):
            raise UserError(f"corpus.folders: {self.what} is not a folder of .txt files: leave it out")
        keys = dict(self.columns)
        if self.client is not None:
            keys["client"] = self.client
        if isinstance(self.split, str) and self.split != "auto":
            keys["split"] = self.split
        elif self.split == "auto" and any("split" in (*part.columns, *part.named) for part in parts):
            keys["split"] = "split"
        table = pyarrow.concat_tables(
            [self._complete(part, keys, part.read(keys, self.written("column"))) for part in parts]
        )
        if not table.num_rows:
            raise UserError(f"corpus.path: {self.what} holds no rows{self.left}: add some")
        return table

    @property
    def left(self) -> str:
        """The end of a message on which rows are left, if some may be dropped."""
        return " after those with missing values are dropped" if self.missing == "drop" else ""

    def _complete(self, part: Part, keys: dict[str, str], table: "pyarrow.Table") -> "pyarrow.Table":
        """Drop or refuse the rows of a part with missing values, and rename splits to the names of ``SPLITS``.

        An unlabeled row needs only a text.
        """
        from pyarrow import compute

        if "split" in table.column_names:
            at = table.column_names.index("split")
            table = table.set_column(at, "split", named_splits(part.where, keys["split"], table["split"]))
            exempt_N = compute.fill_null(compute.equal(table["split"], "unlabeled"), False).to_numpy()
        else:
            exempt_N = np.zeros(table.num_rows, bool)
        kept_N = np.ones(table.num_rows, bool)
        for key in table.column_names:
            trimmed = compute.utf8_trim_whitespace(table[key])
            lacks_N = compute.fill_null(compute.equal(trimmed, ""), True).to_numpy()
            if key in ("label", "client"):
                table = table.set_column(table.column_names.index(key), key, trimmed)
                lacks_N = lacks_N & ~exempt_N
            if self.missing == "refuse" and lacks_N.any():
                count, first = int(lacks_N.sum()), part.place(int(lacks_N.argmax()))
                rows = f"{count:,} rows have" if count > 1 else "1 row has"
                written = self.written(key)
                raise UserError(
                    f"corpus.{written}: {part.where}: {rows} no value in the column {keys[key]!r} "
                    f"({'first: ' if count > 1 else ''}{first}): complete them, or leave them out with corpus.missing: "
                    "drop"
                )
            kept_N &= ~lacks_N
        return table if kept_N.all() else table.filter(kept_N)

    def by_client(self, rows: Rows, clients_N: NDArray[np.int64], seed: int) -> list[RawClient]:
        """Make a client of each value of the column ``client`` with enough texts.

        Args:
            rows: The rows.
            clients_N: The client of each row.
            seed: Seed of the draws.

        Raises:
            UserError: No client has enough texts, or one has none in a split.
        """
        counts = np.bincount(clients_N, minlength=len(rows.clients))
        rows_of = np.split(np.argsort(clients_N, kind="stable"), np.cumsum(counts)[:-1])
        taken = [number for number, count in enumerate(counts) if count >= self.min_texts]
        if not taken:
            raise UserError(
                f"corpus.min_texts: no client of {self.what} has {self.min_texts} texts, the largest has "
                f"{counts.max()}: lower it"
            )
        clients = [
            RawClient(rows.clients[number], **rows.splits(rows_of[number], seed, place))
            for place, number in enumerate(taken)
        ]
        wants_validation = any(len(client.validation) for client in clients)
        for side in ("train", "test", *(["validation"] if wants_validation else [])):
            bare = [client.name for client in clients if not len(getattr(client, side))]
            if bare:
                who = f"client {bare[0]!r} has" if len(bare) == 1 else f"{len(bare)} clients have"
                raise UserError(
                    f"corpus.client: {who} no {side} text{f', the first is {bare[0]!r}' if len(bare) > 1 else ''}: "
                    f"{rows.advice}, or leave out clients of few texts with corpus.min_texts"
                )
        return clients
