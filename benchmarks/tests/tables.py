"""Corpora in small, as the files that benchmarks read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

REVIEWS = ["Dogs and CATS<br />don't 10/10", "and and dogs!", "cats", "a b"]


def save(data: Path, name: str, rows: list[dict]) -> None:
    """Write a corpus of its name into the folder of the corpora."""
    (data / name).mkdir()
    pq.write_table(pa.Table.from_pylist(rows), data / name / f"{name}.parquet")
