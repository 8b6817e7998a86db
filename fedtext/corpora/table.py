"""Labelled texts of the user: a table with a column of texts and one of labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ModelWrapValidatorHandler, field_validator, model_validator

from fedtext.corpora.labelled import LabelledCorpus
from fedtext.corpora.table_parts import Part, named_splits, numbered, parts_of
from fedtext.corpora.table_rows import Rows
from fedtext.corpora.types import RawClient, RawCorpus, Split
from fedtext.errors import UserError
from fedtext.seeding import SERVER
from fedtext.text.representation import TextField, Words
from fedtext.text.tokens import Unlabeled

if TYPE_CHECKING:
    import pyarrow

_TEST = 0.2  # share of test texts if split: auto finds no column
_FEW = 20  # number of labels allowed in a table of any length


class TableCorpus(LabelledCorpus):
    """Labelled texts of your own: CSV, TSV, JSON lines, Parquet, folders of text files, or the hub.

    ``{name: table, path: reviews.csv, text: review, label: stars, client: shop, split: fold}`` reads the columns
    review, stars, shop and fold. The first row of a .csv or .tsv file has the names of the columns, and quotation marks
    enclose fields. A .jsonl, .ndjson or .json file has one object in each line. Files are UTF-8. Several files are read
    in the order of the list, and the files of a folder in the order of their names. All columns are read as strings, so
    that a table gives the same corpus in every format.

    The columns of a folder of .txt files are ``text`` and the columns listed in ``folders``. Other files have a column
    ``file``, their names without the ending. They have a column ``split`` if the names of files, folders or splits of
    the hub contain the names of at least two splits, as train.csv and test.csv do. A column of the table with one of
    these names takes precedence.

    Labels are strings, integers or booleans. Classes are sorted by name, or by value if all names are numbers. So are
    clients. A class of a ``ClassLabel`` column of ``datasets`` keeps its name.

    A path is searched as it is written, then in the folder given with --data, or else in $FEDTEXT_DATA and the cache.
    If OWNER/NAME or OWNER/NAME:SUBSET is in none of them, it is a data set on the Hugging Face hub, which is used only
    if neither --data nor $FEDTEXT_DATA is given.

    With ``client`` each value of the column is a client. Without it the texts are split by ``clients`` and
    ``partition``. Texts without labels are for language models: the corpus ``reddit`` reads a file of them.
    """

    name: Literal["table"] = "table"
    no_natural: ClassVar[str] = "there is no natural partition: name the column of the clients with client"
    path: tuple[str, ...] = Field(
        min_length=1,
        description="file, folder or name on the hub, or a list of these; searched as it is written, then in --data",
    )
    column: str = Field("text", description="column of the texts; text: COLUMN sets it as well")
    label: str = Field("label", description="column of the labels")
    client: str | None = Field(
        None, description="column of the clients; null: texts are split by corpus.clients and corpus.partition"
    )
    split: float | str = Field(
        "auto",
        description="column of the splits, whose values are train, test, validation (valid, val, dev) and unlabeled; "
        "or the share of test texts of each client, between 0 and 1, drawn from the seed; auto: the column split if "
        "there is one, else 0.2",
    )
    folders: tuple[str, ...] = Field(
        ("label",),
        min_length=1,
        description="of a folder of .txt files: the column for each level of its folders, outermost first: [client, "
        "label]",
    )
    missing: Literal["refuse", "drop"] = Field(
        "refuse", description="rows without a text, label, client or split: refuse the table, or leave them out"
    )
    min_texts: int = Field(
        1, ge=1, description="least number of labelled texts of a client, others are left out; only with client"
    )
    clients: int = Field(10, ge=1, description="number of clients the texts are split over; only without client")
    text: TextField = Field(
        Words(treebank=True), description="tokens of a text: its words, or buckets they are hashed to"
    )
    validation: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="share of each client's train texts held out for selection; if the column of the splits has "
        "validation rows, the share of these that is used instead",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _text_is_a_column(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """``text: review`` is ``column: review``, unless review is the name of a representation."""
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str) or text in ("words", "hash", "pieces", "bpe"):
            return handler(value)
        if value.get("column", text) != text:
            raise ValueError(
                f"column: text and column name different columns ({text!r} in text): leave one of them out"
            )
        made = handler({key: given for key, given in value.items() if key != "text"} | {"column": text})
        if "column" not in value:
            made.model_fields_set.add("text")  # what was written, for messages
            made.model_fields_set.discard("column")
        return made

    @field_validator("label", mode="before")
    @classmethod
    def _classes_are_learned(cls, value: Any) -> Any:
        if value is None:
            raise ValueError(
                "a classifier needs a column of labels: name it; texts without labels are for a language model, whose "
                "corpus is {name: reddit, file: FILE, body: COLUMN, author: COLUMN}"
            )
        return value

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

    @model_validator(mode="after")
    def _takes_effect(self) -> Self:
        fields = type(self).model_fields
        idle = ("clients", "partition") if self.client is not None else ("min_texts",)
        for key in idle:
            if getattr(self, key) != fields[key].default:
                said = "the column client assigns texts to clients" if self.client else "client names no column"
                raise ValueError(f"{key}: {said}: leave {key} out")
        return self

    @property
    def unlabeled(self) -> Literal["none", "local", "remote"]:
        return "local" if isinstance(self.split, str) else "none"

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        rows = self._labelled(self._table(data))
        if rows.clients_N is None:
            clients = self._partitioned(rows, seed)
        else:
            clients = self._by_client(rows, rows.clients_N, seed)
        return RawCorpus(self.name, len(rows.labels), clients, labels=rows.labels)

    def read_unlabeled(self, data: Path | None, seed: int) -> list[Unlabeled]:
        """Read the texts of the split unlabeled, which may be empty."""
        table = self._table(data)
        if "split" not in table.column_names:
            return []
        rows = zip(table["column"].to_pylist(), table["split"].to_pylist(), strict=True)
        return [Unlabeled(text) for text, split in rows if split == "unlabeled"]

    @property
    def _column_key(self) -> str:
        """The key by which the column of the texts was given, ``text`` or ``column``."""
        default = type(self).model_fields["column"].default
        return "text" if self.column != default and "column" not in self.model_fields_set else "column"

    @property
    def _what(self) -> str:
        return ", ".join(self.path)

    def _table(self, data: Path | None) -> "pyarrow.Table":
        """Read the complete rows, with a column of strings for each key: column, label, client, split."""
        import pyarrow

        parts = parts_of(self.path, self.folders, data)
        if self.folders != type(self).model_fields["folders"].default and not any(part.rows for part in parts):
            raise UserError(f"corpus.folders: {self._what} is not a folder of .txt files: leave it out")
        keys = {"column": self.column, "label": self.label}
        if self.client is not None:
            keys["client"] = self.client
        if isinstance(self.split, str) and self.split != "auto":
            keys["split"] = self.split
        elif self.split == "auto" and any("split" in (*part.columns, *part.named) for part in parts):
            keys["split"] = "split"
        table = pyarrow.concat_tables([self._complete(part, keys, part.read(keys, self._column_key)) for part in parts])
        if not table.num_rows:
            raise UserError(f"corpus.path: {self._what} holds no rows{self._left}: add some")
        return table

    @property
    def _left(self) -> str:
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
                written = self._column_key if key == "column" else key
                raise UserError(
                    f"corpus.{written}: {part.where}: {rows} no value in the column {keys[key]!r} "
                    f"({'first: ' if count > 1 else ''}{first}): complete them, or leave them out with corpus.missing: "
                    "drop"
                )
            kept_N &= ~lacks_N
        return table if kept_N.all() else table.filter(kept_N)

    def _labelled(self, table: "pyarrow.Table") -> Rows:
        from pyarrow import compute

        if "split" in table.column_names:
            table = table.filter(compute.not_equal(table["split"], "unlabeled"))
        labels, labels_N = numbered(table["label"])
        if len(labels) < 2:
            found = f"only the label {labels[0]!r}" if labels else "no labelled row"
            raise UserError(f"corpus.label: {self._what} has {found}{self._left}: a classifier needs two classes")
        if len(labels) > max(_FEW, len(labels_N) // 2):
            raise UserError(
                f"corpus.label: the column {self.label!r} of {self._what} has {len(labels):,} labels in "
                f"{len(labels_N):,} rows, too many for classes: name another column"
            )
        splits_N = np.array(table["split"].to_pylist(), object) if "split" in table.column_names else None
        whole = Split(table["column"].to_pylist(), labels_N)
        clients, clients_N = numbered(table["client"]) if "client" in table.column_names else ((), None)
        test = _TEST if isinstance(self.split, str) else self.split
        return Rows(whole, labels, splits_N, clients, clients_N, test, self.validation)

    def _partitioned(self, rows: Rows, seed: int) -> list[RawClient]:
        """Split the texts over clients by the partition."""
        splits = rows.splits(np.arange(len(rows.whole)), seed, SERVER)
        for name, split in splits.items():
            if not len(split):
                raise UserError(f"corpus.split: {self._what} has no {name} text: {rows.advice}")
        train, test = splits["train"], splits["test"]
        return self.partition.deal(train, test, len(rows.labels), self.clients, seed, splits.get("validation"))

    def _by_client(self, rows: Rows, clients_N: NDArray[np.int64], seed: int) -> list[RawClient]:
        """Make a client of each value of the column ``client`` with enough texts."""
        counts = np.bincount(clients_N, minlength=len(rows.clients))
        rows_of = np.split(np.argsort(clients_N, kind="stable"), np.cumsum(counts)[:-1])
        taken = [number for number, count in enumerate(counts) if count >= self.min_texts]
        if not taken:
            raise UserError(
                f"corpus.min_texts: no client of {self._what} has {self.min_texts} texts, the largest has "
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
