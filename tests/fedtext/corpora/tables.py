"""A table of reviews, written to files of several formats and read as a corpus."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from fedtext.corpora.table import TableCorpus
from fedtext.corpora.types import RawCorpus
from fedtext.errors import UserError

SIDES = ("train", "validation", "test")
REVIEWS = {
    "text": [f'say "{word}", {n}\nand more é' for n, word in enumerate(["good", "bad", "fine", "poor"] * 12)],
    "stars": [10, 2, 10, 1] * 12,
    "shop": (["north"] * 4 + ["south"] * 4 + ["east"] * 4) * 4,
    "fold": ["train"] * 24 + ["Test"] * 12 + ["dev"] * 12,
}
KEYS: dict[str, Any] = {"label": "stars", "client": "shop", "split": "fold", "validation": 1.0}


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    """A table in the format that its name asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix in (".csv", ".tsv"):
        options = pcsv.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        pcsv.write_csv(pa.table(columns), path, options)
    else:
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def read(path: Path | str, seed: int = 0, data: Path | None = None, **keys: Any) -> RawCorpus:
    return TableCorpus(path=str(path), **keys).read(data, seed)


def content(raw: RawCorpus) -> Any:
    """All that a corpus holds, to compare."""
    return raw.labels, [
        (c.name, *((getattr(c, side).texts, getattr(c, side).labels.tolist()) for side in SIDES)) for c in raw.clients
    ]


def texts(raw: RawCorpus, side: str) -> list[str]:
    return [text for client in raw.clients for text in getattr(client, side).texts]


def complaint(path: Path | str, **keys: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(path, **keys)
    assert "\n" not in str(caught.value)
    return str(caught.value)
