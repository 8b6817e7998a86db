"""Labelled texts that come without clients: read from a table or the hub, and dealt out by a partition."""

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

Sides = Mapping[str, Split]  # by what the corpus calls them
COLUMNS = {"split": "string", "label": "int64", "text": "string"}


class LabelledCorpus(CorpusConfig):
    """What is dealt out of one set of texts."""

    labels: ClassVar[int]  # classes, 0 to labels - 1
    no_natural: ClassVar[str] = (
        "there is no natural partition, since these texts come without users or domains: take iid, dirichlet or "
        "pathological (of one class each: a class is a domain)"
    )
    clients: int = Field(100, ge=1, description="how many share the texts")
    partition: PartitionField = Field(IID(), description="which client has which texts")

    @field_validator("partition", mode="before")
    @classmethod
    def _nobody_wrote_them(cls, value: Any) -> Any:
        if value == "natural" or (isinstance(value, dict) and "natural" in (*value, value.get("name"))):
            raise ValueError(cls.no_natural)
        return value

    def dealt(self, train: Split, test: Split, seed: int, validation: Split | None = None) -> RawCorpus:
        clients = self.partition.deal(train, test, self.labels, self.clients, seed, validation)
        return RawCorpus(self.name, self.labels, clients)


def find_table(folder: str, names: Sequence[str], data: Path | None) -> Path | None:
    """The first of these files, in the corpus's folder or not, wherever files are looked for; None: there is none."""
    return first([place for name in names for place in (f"{folder}/{name}", name)], data)


def file_sides(path: Path, classes: int, clean: Callable[[str], str] = str) -> Sides:
    """The train, dev and test texts of a table of ``COLUMNS``, in its order. Raises UserError for an unknown label."""
    table = read_table(path, COLUMNS)
    sides_N, texts, labels_N = np.array(table["split"].to_pylist()), table["text"].to_pylist(), table["label"]
    return parted(str(path), sides_N, texts, labels_N.to_numpy(), classes, clean)


def parted(
    source: str, sides_N: NDArray, texts: list[str], labels_N: NDArray, classes: int, clean: Callable[[str], str]
) -> Sides:
    """Texts by the side each is of, which may be empty."""
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
    """These splits of a data set on the hub, whose column of texts is ``text``; asked for where there is no ``file``.
    Raises UserError, also where a folder was named that must have the file (see hub.py)."""
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
