"""Labelled texts without clients, read from a table or the hub and split over clients by ``corpus.partition``."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fedtext.corpora.base import CorpusConfig, first
from fedtext.corpora.files import read_table
from fedtext.corpora.hub import from_hub
from fedtext.corpora.partition import IID, PartitionField
from fedtext.corpora.types import RawCorpus, Split
from fedtext.errors import UserError

Sides = Mapping[str, Split]  # by their names in the corpus
COLUMNS = {"split": "string", "label": "int64", "text": "string"}


class LabelledCorpus(CorpusConfig):
    """Base of corpora whose labelled texts come without clients.

    ``read`` of a subclass ends with ``return self.dealt(train, test, seed)``.

    Attributes:
        labels: Number of classes C. Labels are 0 to C - 1.
        no_natural: The message for ``partition: natural``.
    """

    labels: ClassVar[int]
    no_natural: ClassVar[str] = (
        "there is no natural partition, since these texts come without users or domains: use iid, dirichlet or "
        "pathological (with one class for each client a class is a domain)"
    )
    clients: int = Field(100, ge=1, description="number of clients the texts are split over")
    partition: PartitionField = Field(IID(), description="how texts are split over the clients")

    @field_validator("partition", mode="before")
    @classmethod
    def _no_one_wrote_them(cls, value: Any) -> Any:
        if value == "natural" or (isinstance(value, dict) and "natural" in (*value, value.get("name"))):
            raise ValueError(cls.no_natural)
        return value

    @property
    def draws_clients(self) -> bool:
        return True

    def dealt(self, train: Split, test: Split, seed: int, validation: Split | None = None) -> RawCorpus:
        """Split the texts over ``clients`` clients by ``partition``.

        Args:
            train: All train texts.
            test: All test texts.
            seed: Seed of the draws.
            validation: All validation texts; None: the corpus has none.
        """
        clients = self.partition.deal(train, test, self.labels, self.clients, seed, validation)
        return RawCorpus(self.name, self.labels, clients)


def find_table(folder: str, names: Sequence[str], data: Path | None) -> Path | None:
    """Return the first file that exists, as ``folder/name`` or ``name`` in the data folders; None if there is none.

    Args:
        folder: Name of the corpus's own folder.
        names: Names of the file.
        data: The folder given with --data, if any.
    """
    return first([place for name in names for place in (f"{folder}/{name}", name)], data)


def file_sides(path: Path, classes: int, clean: Callable[[str], str] = str) -> Sides:
    """Read the train, dev and test texts of a table with ``COLUMNS``, in its order.

    Args:
        path: A Parquet or .csv file.
        classes: Number of classes.
        clean: Function that is applied to each text.

    Raises:
        UserError: The table cannot be read, or a label is not in 0..classes - 1.
    """
    table = read_table(path, COLUMNS)
    sides_N, texts, labels_N = np.array(table["split"].to_pylist()), table["text"].to_pylist(), table["label"]
    return parted(str(path), sides_N, texts, labels_N.to_numpy(), classes, clean)


def parted(
    source: str, sides_N: NDArray, texts: list[str], labels_N: NDArray, classes: int, clean: Callable[[str], str]
) -> Sides:
    """Group texts by the names of their splits. A group may be empty.

    Args:
        source: Where the texts come from, for messages.
        sides_N: Name of each text's split: train, dev or test.
        texts: The texts.
        labels_N: Their labels.
        classes: Number of classes.
        clean: Applied to each text.
    """
    whole = _split(source, texts, labels_N, classes, clean)
    return {side: whole.take(np.flatnonzero(sides_N == side)) for side in ("train", "dev", "test")}


def hub_sides(
    corpus: str,
    dataset: str,
    classes: int,
    file: str,
    data: Path | None,
    sides: Sequence[str],
    text: str = "text",
    clean: Callable[[str], str] = str,
) -> Sides:
    """Read splits of a data set on the hub because a ``file`` is missing.

    Args:
        corpus: Name of the corpus, for messages.
        dataset: OWNER/NAME on the hub.
        classes: Number of classes.
        file: The missing file.
        data: The folder given with --data, if any.
        sides: Names of the splits.
        text: Column of the texts.
        clean: Function that is applied to each text.

    Raises:
        UserError: A data folder is given, which must contain the file (see ``hub.check_hub_allowed``), or the data set
            cannot be read.
    """
    loaded = from_hub(corpus, file, data, dataset)
    return {
        side: _split(f"{dataset} on the hub", list(loaded[side][text]), np.array(loaded[side]["label"]), classes, clean)
        for side in sides
    }


def _split(source: str, texts: list[str], labels_N: NDArray, classes: int, clean: Callable[[str], str]) -> Split:
    if not np.isin(labels_N, range(classes)).all():
        known = "0 or 1" if classes == 2 else f"0 to {classes - 1}"
        raise UserError(f"{source} has a label that is not {known}: fetch it again")
    return Split([clean(text) for text in texts], labels_N.astype(np.int64))
