"""The values of a table's columns: names of splits, and names that become numbers."""

import re
from collections.abc import Iterable, Sequence
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
BOOLEANS = {"true", "false"}  # in any case
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


def as_listed(value: str) -> str:
    """Return a label as ``corpus.classes`` lists it: True and true are the same."""
    return value.lower() if value.lower() in BOOLEANS else value


def numbered(
    column: "pyarrow.ChunkedArray", listed: Sequence[str] | None = None
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Encode a column as integers.

    Args:
        column: The column.
        listed: All values that may be in it, in their order; None: those that are.

    Returns:
        The values, and the index of each row's value. Those that are not listed have the order of ``ordered``. True
        and true are the same.
    """
    coded = column.combine_chunks().dictionary_encode()
    values = coded.dictionary.to_pylist()
    if listed is None and {value.lower() for value in values} <= BOOLEANS:
        values = [value.lower() for value in values]
    names = ordered(set(values)) if listed is None else list(listed)
    place = {name: number for number, name in enumerate(names)}
    numbers = np.array([place[value] for value in values], np.int64)
    return tuple(names), numbers[coded.indices.to_numpy()]


def ordered(names: Iterable[str]) -> list[str]:
    """Sort names: by value if all are numbers, so that 2 comes before 10, else alphabetically."""
    names = sorted(names)
    if all(_NUMBER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (Decimal(name), name))
    return names
