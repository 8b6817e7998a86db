"""The encoding of payloads. A client sends nothing else to the server, and all byte counts in reports are measured
here.

The format is safetensors: named tensors after a JSON header, no code, no pickle. Eight bits are packed into a byte. A
client sends the same header in every round; it is made once.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from fedtext.layout import TABLE, finite, not_finite
from fedtext.messages import Update

_SAMPLES, _ROWS = "#samples", "#rows"
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


def decode(
    data: bytes | NDArray[np.uint8], client: int, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype = FLOAT32
) -> Update:
    """Decode an update, and check it against the tensors that the server expects.

    Args:
        data: The payload.
        client: The client's id.
        shapes: Expected shapes by name; that of the table with all rows.
        dtype: Type of the tensors: float32, bool for bits, or uint32.

    Returns:
        The update, with its tensors in the order of ``shapes``.

    Raises:
        ValueError: It is not a payload of these tensors: it is truncated, has other names, shapes or types, elements
            that are not finite, or rows that are not distinct rows of the table.
    """
    try:
        content, floats_N = _tensors(data)
    except SafetensorError as error:
        raise ValueError(f"it sent no readable payload: {error}") from error
    if _SAMPLES not in content:
        raise ValueError("it sent a payload without its sample count")
    count_1, rows = content.pop(_SAMPLES), content.pop(_ROWS, None)
    if (count_1.dtype, count_1.shape) != (_COUNTS, (1,)) or count_1[0] < 0:
        raise ValueError(f"it sent a sample count that is none: {count_1.dtype}{count_1.shape}")
    if set(content) != set(shapes):
        raise ValueError(f"it sent tensors {sorted(content)} where {sorted(shapes)} are expected")
    for name, tensor in content.items():
        expected = shapes[name]
        if name == TABLE and rows is not None:
            _check_rows(rows, expected[0])
            expected = (len(rows), *expected[1:])
        sent, shape = (_BYTES, (-(-prod(expected) // 8),)) if dtype == BITS else (dtype, expected)
        if tensor.dtype != sent or tensor.shape != shape:
            raise ValueError(f"it sent {name} as {tensor.dtype}{tensor.shape}, not {sent}{shape}")
        if dtype == BITS:
            content[name] = np.unpackbits(tensor, count=prod(expected)).view(np.bool_).reshape(expected)
    if not finite(floats_N):
        raise ValueError(f"it sent {not_finite(content)} with numbers that are not finite")
    in_order = {name: content[name] for name in shapes}  # safetensors gives them in another order each time
    return Update(client, int(count_1[0]), in_order, rows)


def _tensors(data: bytes | NDArray[np.uint8]) -> tuple[dict[str, NDArray], NDArray[np.float32]]:
    """Return the tensors of a payload, in a copy of it, and the elements of those of float32 side by side.

    Raises:
        SafetensorError: It is not in the format.
        ValueError: It has a type that numpy does not have.
    """
    copy = bytearray(data)
    end = _LENGTH + int.from_bytes(copy[:_LENGTH], "little")
    places = (_places if end <= _LONGEST else _places.__wrapped__)(bytes(copy[:end]), len(copy))
    content = {
        name: np.frombuffer(copy, dtype, count, end + start).reshape(shape)
        for name, dtype, shape, count, start in places
    }
    floats = [(start, count) for _, dtype, _, count, start in places if dtype == FLOAT32]
    first = min((start for start, _ in floats), default=0)  # a payload has no gaps, and its types are side by side
    return content, np.frombuffer(copy, FLOAT32, sum(count for _, count in floats), end + first)


@lru_cache(maxsize=4096)
def _places(header: bytes, size: int) -> tuple[tuple[str, np.dtype, tuple[int, ...], int, int], ...]:
    """Return name, type, shape, number of elements and offset of each tensor of payloads with this header and this many
    bytes. Whether it is valid does not depend on the other bytes: safetensors checks it with zeros.

    Raises:
        SafetensorError: It is not valid.
        ValueError: It has a type that numpy does not have.
    """
    try:
        checked = load(header + bytes(size - len(header)))
    except KeyError as error:
        raise ValueError(f"it sent a tensor of a type that is none of numpy: {error}") from error
    starts = {name: entry["data_offsets"][0] for name, entry in json.loads(header[_LENGTH:]).items() if name in checked}
    return tuple((name, found.dtype, found.shape, found.size, starts[name]) for name, found in checked.items())


def _check_rows(rows: NDArray, vocabulary: int) -> None:
    inside = rows.ndim == 1 and (len(rows) == 0 or (rows.min() >= 0 and rows.max() < vocabulary))
    if rows.dtype != np.int32 or not inside or np.unique(rows).size != rows.size:
        raise ValueError(f"it sent rows that are not distinct rows of a table of {vocabulary}")


def encoded_size(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Compute the size in bytes of encoded float32 tensors of these shapes, without encoding them.

    It equals ``len(save(tensors))``, but is 0 without tensors.
    """
    if not shapes:
        return 0
    header, _ = _header(tuple((name, FLOAT32, shape) for name, shape in shapes.items()))
    return len(header) + FLOAT32.itemsize * sum(map(prod, shapes.values()))
