"""Labelled texts of the user: a table with a column of texts and one of labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ModelWrapValidatorHandler, field_validator, model_validator

from fedtext.corpora.labelled import LabelledCorpus
from fedtext.corpora.table_keys import TEST, TableKeys
from fedtext.corpora.table_rows import Rows
from fedtext.corpora.table_values import BOOLEANS, as_listed, numbered
from fedtext.corpora.types import RawClient, RawCorpus, Split
from fedtext.errors import UserError
from fedtext.seeding import SERVER
from fedtext.text.representation import TextField, Words
from fedtext.text.tokens import Unlabeled

if TYPE_CHECKING:
    import pyarrow

_FEW = 20  # number of labels allowed in a table of any length
_SAID = 10  # number of listed classes in a message


class TableCorpus(TableKeys, LabelledCorpus):
    """Labelled texts of your own: CSV, TSV, JSON lines, Parquet, folders of text files, or the hub.

    ``{name: table, path: reviews.csv, text: review, label: stars, client: shop, split: fold}`` reads the columns
    review, stars, shop and fold. The first row of a .csv or .tsv file has the names of the columns, and quotation marks
    enclose fields. A .jsonl, .ndjson or .json file has one object in each line. Files are UTF-8. Several files are read
    in the order of the list, and the files of a folder in the order of their names. All columns are read as strings, so
    that a table gives the same corpus in every format, but for numbers with a point: a .csv or .tsv file has them as
    written, 1.0 for example, and a Parquet file has 1.

    The columns of a folder of .txt files are ``text`` and the columns listed in ``folders``. Other files have a column
    ``file``, their names without the ending. They have a column ``split`` if the names of files, folders or splits of
    the hub contain the names of at least two splits, as train.csv and test.csv do. A column of the table with one of
    these names takes precedence.

    Labels are strings, integers or booleans. Classes are those of the list ``classes``; without it all labels, sorted
    by name, or by value if all names are numbers. So are clients. A class of a ``ClassLabel`` column of ``datasets``
    keeps its name.

    A path is searched as it is written, then in the folder given with --data, or else in $FEDTEXT_DATA and the cache.
    If OWNER/NAME or OWNER/NAME:SUBSET is in none of them, it is a data set on the Hugging Face hub, which is used only
    if neither --data nor $FEDTEXT_DATA is given.

    With ``client`` each value of the column is a client. Without it the texts are split by ``clients`` and
    ``partition``. Texts without labels are for language models: the corpus ``reddit`` reads a file of them.
    """

    name: Literal["table"] = "table"
    no_natural: ClassVar[str] = "there is no natural partition: name the column of the clients with client"
    column: str = Field("text", description="column of the texts; text: COLUMN sets it as well")
    label: str = Field("label", description="column of the labels")
    classes: tuple[str, ...] | None = Field(
        None,
        min_length=2,
        description="the labels that are classes, in their order, known before the file is opened: rows with another "
        "one are refused, or left out by missing: drop; null: all labels of the table, which then tells those of "
        "single clients",
    )
    folders: tuple[str, ...] = Field(
        ("label",),
        min_length=1,
        description="of a folder of .txt files: the column for each level of its folders, outermost first: [client, "
        "label]",
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

    @field_validator("classes", mode="before")
    @classmethod
    def _classes_are_strings(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        names = [str(name).strip() if isinstance(name, (str, bool, int, float)) else name for name in value]
        names = [name.lower() if isinstance(name, str) and name.lower() in BOOLEANS else name for name in names]
        if "" in names:
            raise ValueError("a label that is empty is of no row: leave it out")
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        if twice:
            raise ValueError(f"{twice[0]} is there twice: list each label once")
        return names

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
    def names_classes(self) -> bool:
        return self.classes is None

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        rows = self._labelled(self.table(data))
        if rows.clients_N is None:
            clients = self._partitioned(rows, seed)
        else:
            clients = self.by_client(rows, rows.clients_N, seed)
        return RawCorpus(self.name, len(rows.labels), clients, labels=rows.labels, unused=rows.unused)

    def read_unlabeled(self, data: Path | None, seed: int) -> list[Unlabeled]:
        """Read the texts of the split unlabeled, which may be empty."""
        table = self.table(data)
        if "split" not in table.column_names:
            return []
        rows = zip(table["column"].to_pylist(), table["split"].to_pylist(), strict=True)
        return [Unlabeled(text) for text, split in rows if split == "unlabeled"]

    @property
    def columns(self) -> dict[str, str]:
        return {"column": self.column, "label": self.label}

    @property
    def levels(self) -> tuple[str, ...]:
        return self.folders

    def written(self, key: str) -> str:
        """Return the key of a column; that of the texts is ``text`` or ``column``."""
        if key != "column":
            return key
        default = type(self).model_fields["column"].default
        return "text" if self.column != default and "column" not in self.model_fields_set else "column"

    def _labelled(self, table: "pyarrow.Table") -> Rows:
        from pyarrow import compute

        if "split" in table.column_names:
            table = table.filter(compute.not_equal(table["split"], "unlabeled"))
        if self.classes is not None:
            table = self._of_classes(table)
        labels, labels_N = numbered(table["label"], self.classes)
        if len(labels) < 2:
            found = f"only the label {labels[0]!r}" if labels else "no labelled row"
            raise UserError(f"corpus.label: {self.what} has {found}{self.left}: a classifier needs two classes")
        if self.classes is None and len(labels) > max(_FEW, len(labels_N) // 2):
            raise UserError(
                f"corpus.label: the column {self.label!r} of {self.what} has {len(labels):,} labels in "
                f"{len(labels_N):,} rows, too many for classes: name another column"
            )
        splits_N = np.array(table["split"].to_pylist(), object) if "split" in table.column_names else None
        whole = Split(table["column"].to_pylist(), labels_N)
        clients, clients_N = numbered(table["client"]) if "client" in table.column_names else ((), None)
        test = TEST if isinstance(self.split, str) else self.split
        return Rows(whole, labels, splits_N, clients, clients_N, test, self.validation)

    def _of_classes(self, table: "pyarrow.Table") -> "pyarrow.Table":
        """Return the rows whose labels are classes, with the labels as these list them.

        Raises:
            UserError: There are others, or none is left.
        """
        import pyarrow

        assert self.classes is not None
        at, labels = table.column_names.index("label"), [as_listed(label) for label in table["label"].to_pylist()]
        known_N = np.array([label in self.classes for label in labels], bool)
        if self.missing == "refuse" and not known_N.all():
            count, first = int((~known_N).sum()), table["label"][int(known_N.argmin())].as_py()
            rows = f"{count:,} rows have other labels (the first {first!r}) than"
            if count == 1:
                rows = f"1 row has {first!r}, which is none of"
            raise UserError(
                f"corpus.classes: {self.what}: {rows} {self._listed}: add what is missing, or leave such rows out "
                "with corpus.missing: drop"
            )
        if not known_N.any():
            raise UserError(f"corpus.classes: {self.what} has no row with {self._listed}: correct them")
        return table.set_column(at, "label", pyarrow.array(labels)).filter(pyarrow.array(known_N))

    @property
    def _listed(self) -> str:
        """The listed classes in words. YAML has made true and false of yes, no, on and off."""
        assert self.classes is not None
        more = ", ..." if len(self.classes) > _SAID else ""
        hint = " (put yes, no, on and off in quotation marks)" if BOOLEANS.intersection(self.classes) else ""
        return f"{', '.join(map(repr, self.classes[:_SAID]))}{more}{hint}"

    def _partitioned(self, rows: Rows, seed: int) -> list[RawClient]:
        """Split the texts over clients by the partition."""
        splits = rows.splits(np.arange(len(rows.whole)), seed, SERVER)
        for name, split in splits.items():
            if not len(split):
                raise UserError(f"corpus.split: {self.what} has no {name} text: {rows.advice}")
        train, test = splits["train"], splits["test"]
        return self.partition.deal(train, test, len(rows.labels), self.clients, seed, splits.get("validation"))
