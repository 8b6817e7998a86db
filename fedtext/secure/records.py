"""Messages of the protocol: byte strings by the id of a client, in bytes."""

import struct
from collections.abc import Iterable, Mapping

_HEAD = struct.Struct("<II")  # id, and number of bytes


def pack(records: Mapping[int, bytes]) -> bytes:
    """Return byte strings by id as one."""
    return b"".join(part for client, record in records.items() for part in (_HEAD.pack(client, len(record)), record))


def unpack(message: bytes) -> dict[int, bytes]:
    """Return the byte strings by id.

    Raises:
        ValueError: The message is truncated, or has an id twice.
    """
    found: dict[int, bytes] = {}
    place = 0
    while place < len(message):
        if len(message) - place < _HEAD.size:
            raise ValueError("a message is truncated")
        client, size = _HEAD.unpack_from(message, place)
        place += _HEAD.size
        if len(message) - place < size or client in found:
            raise ValueError("a message is truncated, or names a client twice")
        found[client] = message[place : place + size]
        place += size
    return found


def pack_ids(clients: Iterable[int]) -> bytes:
    """Return ids as bytes."""
    ids = list(clients)
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack_ids(message: bytes) -> list[int]:
    """Return the ids.

    Raises:
        ValueError: The message is truncated.
    """
    if len(message) % 4:
        raise ValueError("a message is truncated")
    return list(struct.unpack(f"<{len(message) // 4}I", message))
