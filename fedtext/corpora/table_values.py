"""The values of a table's columns: names of splits, and names that become numbers."""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedtext.errors import UserError

if TYPE_CHECKING:
    import pyarrow

SPLITS = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "validation": ("validation", "valid", "val", "dev", "development"),
    "unlabeled": ("unlabeled", "unlabelled", "unlabel", "unsupervised"),
}
SYNONYMS = {word: split for split, words in SPLITS.items() for word in words}
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def named_splits(where: str, column: str, splits: "pyarrow.ChunkedArray") -> "pyarrow.Array":
    """Replace the names of splits by the keys of ``SPLITS``.

    Args:
        where: The file, for the message.
        column: Name of the column.
        splits: The column.

    Raises:
        UserError: A value is no synonym of a split's name.
    """
    import pyarrow

    coded = splits.combine_chunks().dictionary_encode()
    values = [value.strip().lower() for value in coded.dictionary.to_pylist()]
    unknown = sorted({value for value in values if value and value not in SYNONYMS})
    if unknown:
        shown = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        raise UserError(
            f"corpus.split: {where}: {shown} in the column {column!r} is not the name of a split: "
            f"write {', '.join(SPLITS)} (or {', '.join(SPLITS['validation'][1:4])}), or set corpus.split to the "
            "share of test texts, 0.2 for example"
        )
    names = pyarrow.array([SYNONYMS.get(value, "") for value in values], pyarrow.string())
    return names.take(coded.indices)


def numbered(column: "pyarrow.ChunkedArray") -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Encode a column as integers.

    Returns:
        The different values in the order of ``ordered``, and the index of each row's value. True and true are the same.
    """
    coded = column.combine_chunks().dictionary_encode()
    values = coded.dictionary.to_pylist()
    if {value.lower() for value in values} <= {"true", "false"}:
        values = [value.lower() for value in values]
    names = ordered(set(values))
    place = {name: number for number, name in enumerate(names)}
    numbers = np.array([place[value] for value in values], np.int64)
    return tuple(names), numbers[coded.indices.to_numpy()]


def ordered(names: Iterable[str]) -> list[str]:
    """Sort names: by value if all are numbers, so that 2 comes before 10, else alphabetically."""
    names = sorted(names)
    if all(_NUMBER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (Decimal(name), name))
    return names
