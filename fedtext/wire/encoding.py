"""The encoding of payloads. A client sends nothing else to the server, and all byte counts in reports are measured
here.

The format is safetensors: named tensors after a JSON header, no code, no pickle. Eight bits are packed into a byte. A
client sends the same header in every round; it is made once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from fedtext.layout import TABLE, finite, not_finite
from fedtext.messages import SideBySide, Update

_SAMPLES, _ROWS = "#samples", "#rows"
_ROWS_OF = "it sent rows that are not distinct rows of a table of {}"
# Codes of types in headers. Tensors are in this order of types, then by name, as safetensors writes them.
_ORDER = ["U64", "I64", "F64", "F32", "U32", "I32", "F16", "U16", "I16", "I8", "U8"]
_CODES = {np.dtype(f"<{code[0].lower()}{int(code[1:]) // 8}"): code for code in _ORDER}
_LENGTH = 8  # bytes of the header's length, before it
_LONGEST = 65_536  # bytes of a header that is kept, since clients choose it: some 500 tensors
# Types of the tensors of updates.
FLOAT32: np.dtype = np.dtype(np.float32)
BITS: np.dtype = np.dtype(np.bool_)
INTEGERS: np.dtype = np.dtype(np.uint32)
_BYTES, _COUNTS = np.dtype(np.uint8), np.dtype(np.int64)

Kinds = tuple[tuple[str, np.dtype, tuple[int, ...]], ...]  # name, type and shape of each tensor


def encode(update: Update) -> bytes:
    """Encode an update: its named tensors, its sample count, and the rows of the table unless it has all rows."""
    tensors: Mapping[str, NDArray] = update.tensors
    content: dict[str, NDArray] = {
        name: np.packbits(t) if t.dtype == np.bool_ else np.asarray(t, order="C") for name, t in tensors.items()
    }
    content[_SAMPLES] = np.array([update.samples], np.int64)
    if update.rows is not None:
        content[_ROWS] = np.asarray(update.rows, order="C")  # a copy of rows with strides
    header, names = _header(tuple((name, tensor.dtype, tensor.shape) for name, tensor in content.items()))
    return b"".join([header, *(content[name].data for name in names)])


@lru_cache(maxsize=4096)
def _header(kinds: Kinds) -> tuple[bytes, tuple[str, ...]]:
    """Return the header of a payload, with its length before it, and the names of its tensors in order."""
    header, end = {}, 0
    for name, dtype, shape in sorted(kinds, key=lambda kind: (_ORDER.index(_CODES[kind[1]]), kind[0])):
        size = dtype.itemsize * prod(shape)
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, tuple(header)


@dataclass(frozen=True)
class _Places:
    """Where the tensors of a payload are, in bytes from its beginning.

    Attributes:
        samples: Offset of the sample count.
        rows: Offset and number of the rows of the table; None: the payload has all.
        tensors: Name, shape, number of elements (of bits: of bytes) and offset of each tensor, in the order that is
            expected.
        first: Offset of the first tensor. Tensors of a type lie side by side.
        count: Number of elements of all of them.
        starts: Offset of each in elements from the first.
    """

    samples: int
    rows: tuple[int, int] | None
    tensors: tuple[tuple[str, tuple[int, ...], int, int], ...]
    first: int
    count: int
    starts: Mapping[str, int]


def decode(
    data: bytes | NDArray[np.uint8],
    client: int,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: np.dtype = FLOAT32,
    own_rows: bool | None = None,
    copied: bool = True,
) -> Update:
    """Decode an update, and check it against the tensors that the server expects.

    Args:
        data: The payload.
        client: The client's id.
        shapes: Expected shapes by name; that of the table with all rows.
        dtype: Type of the tensors: float32, bool for bits, or uint32.
        own_rows: Whether a client sends rows of the table with their numbers, or all; None: either.
        copied: Whether the tensors are a copy of the payload; else they are read-only parts of it.

    Returns:
        The update, with its tensors in the order of ``shapes``.

    Raises:
        ValueError: It is not a payload of these tensors: it is truncated, has other names, shapes or types, elements
            that are not finite, or rows that are not distinct rows of the table.
    """
    given = data if isinstance(data, bytes) else data.data
    held = memoryview(bytearray(given)) if copied else memoryview(given).toreadonly()
    end = _LENGTH + int.from_bytes(held[:_LENGTH], "little")
    find = _places if end <= _LONGEST else _places.__wrapped__
    places = find(bytes(held[:end]), len(held), tuple(shapes.items()), dtype)
    samples = int.from_bytes(held[places.samples : places.samples + _COUNTS.itemsize], "little", signed=True)
    if samples < 0:
        raise ValueError(f"it sent a sample count that is none: {samples}")
    rows = None
    if own_rows is not None and TABLE in shapes and own_rows != bool(places.rows):
        raise ValueError(
            f"it sent {'all rows' if own_rows else 'some rows'} of the table, and wire.rows says otherwise"
        )
    if places.rows:
        rows = np.frombuffer(held, np.int32, places.rows[1], places.rows[0])
        _check_rows(rows, shapes[TABLE][0])
    content: dict[str, NDArray] = {}
    for name, shape, count, start in places.tensors:
        flat = np.frombuffer(held, _BYTES if dtype == BITS else dtype, count, start)
        if dtype == BITS:
            flat = np.unpackbits(flat, count=prod(shape)).view(np.bool_)
        content[name] = flat.reshape(shape)
    if dtype == FLOAT32:
        values_N = np.frombuffer(held, FLOAT32, places.count, places.first)
        if not finite(values_N):
            raise ValueError(f"it sent {not_finite(content)} with numbers that are not finite")
        content = SideBySide(content, values_N, places.starts)
    return Update(client, samples, content, rows)


@lru_cache(maxsize=4096)
def _places(header: bytes, size: int, shapes: tuple[tuple[str, tuple[int, ...]], ...], dtype: np.dtype) -> _Places:
    """Find the tensors of payloads with this header and this many bytes, and check them against those expected.

    Whether a payload is valid safetensors does not depend on the bytes after its header: zeros are checked.

    Raises:
        ValueError: They are not those that are expected.
    """
    try:
        found = load(header + bytes(size - len(header)))
    except SafetensorError as error:
        raise ValueError(f"it sent no readable payload: {error}") from error
    except KeyError as error:
        raise ValueError(f"it sent a tensor of a type that is none of numpy: {error}") from error
    at = {
        name: len(header) + entry["data_offsets"][0]
        for name, entry in json.loads(header[_LENGTH:]).items()
        if name in found
    }
    if _SAMPLES not in found:
        raise ValueError("it sent a payload without its sample count")
    count_1, rows = found.pop(_SAMPLES), found.pop(_ROWS, None)
    if (count_1.dtype, count_1.shape) != (_COUNTS, (1,)):
        raise ValueError(f"it sent a sample count that is none: {count_1.dtype}{count_1.shape}")
    expected = dict(shapes)
    if set(found) != set(expected):
        raise ValueError(f"it sent tensors {sorted(found)} where {sorted(expected)} are expected")
    if rows is not None:
        if TABLE not in expected:
            raise ValueError("it sent rows of a table, and no table is expected")
        if rows.dtype != np.int32 or rows.ndim != 1:
            raise ValueError(_ROWS_OF.format(expected[TABLE][0]))
        expected[TABLE] = (len(rows), *expected[TABLE][1:])
    for name, shape in expected.items():
        kind, sent = (_BYTES, (-(-prod(shape) // 8),)) if dtype == BITS else (dtype, shape)
        if found[name].dtype != kind or found[name].shape != sent:
            raise ValueError(f"it sent {name} as {found[name].dtype}{found[name].shape}, not {kind}{sent}")
    first, count = min((at[name] for name in expected), default=len(header)), sum(map(np.size, found.values()))
    starts = {name: (at[name] - first) // found[name].itemsize for name in expected}
    if any(starts[name] + found[name].size > count for name in expected):  # safetensors allows any order
        raise ValueError("it sent tensors with its sample count or its rows between them")
    return _Places(
        at[_SAMPLES],
        None if rows is None else (at[_ROWS], len(rows)),
        tuple((name, shape, found[name].size, at[name]) for name, shape in expected.items()),
        first,
        count,
        starts,
    )


def _check_rows(rows_R: NDArray[np.int32], vocabulary: int) -> None:
    if not len(rows_R):
        return
    ascending = bool((rows_R[1:] > rows_R[:-1]).all())  # as clients send them
    inside = rows_R.min() >= 0 and rows_R.max() < vocabulary
    if not inside or not (ascending or np.unique(rows_R).size == rows_R.size):
        raise ValueError(_ROWS_OF.format(vocabulary))


def encoded_size(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Compute the size in bytes of encoded float32 tensors of these shapes, without encoding them.

    It equals ``len(save(tensors))``, but is 0 without tensors.
    """
    if not shapes:
        return 0
    header, _ = _header(tuple((name, FLOAT32, shape) for name, shape in shapes.items()))
    return len(header) + FLOAT32.itemsize * sum(map(prod, shapes.values()))
