"""The parts of a checkpoint that grow: records of rounds, and private states of clients, in files that never change."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from fedtext.records import RoundRecord

TOGETHER = 8  # records in a block; blocks in one of the next size
RECORDS = re.compile(r"records-([0-9]+)-([0-9]+)\.jsonl")
CLIENTS = re.compile(r"clients-([0-9]+)\.states")


def blocks(rounds: int) -> list[tuple[int, int]]:
    """Split the rounds 1 to ``rounds`` into blocks: of 8^n rounds each, the largest first, and the rest as one.

    Most blocks of a run are those of the same run one round earlier, and there are at most seven of each size.

    Returns:
        The first and the last round of each block.
    """
    size, found, first = TOGETHER, list[tuple[int, int]](), 1
    while size * TOGETHER <= rounds:
        size *= TOGETHER
    while size > 1:
        while rounds - first + 1 >= size:
            found.append((first, first + size - 1))
            first += size
        size //= TOGETHER
    return found if first > rounds else [*found, (first, rounds)]


def records_file(first: int, last: int) -> str:
    """Return the name of the file with a block of records."""
    return f"records-{first:06d}-{last:06d}.jsonl"


def clients_file(round_: int) -> str:
    """Return the name of the file with the private states that were new after a round."""
    return f"clients-{round_:06d}.states"


def clients_files(names: Iterable[str]) -> list[str]:
    """Return the names of files with private states in the order of their rounds. Later ones supersede earlier ones."""
    found = [(int(match[1]), name) for name in names if (match := CLIENTS.fullmatch(name))]
    return [name for _, name in sorted(found)]


def lines(records: Sequence[RoundRecord]) -> bytes:
    """Return records as lines of JSON."""
    return "".join(json.dumps(record.to_json()) + "\n" for record in records).encode()


def records(content: bytes) -> list[RoundRecord]:
    """Return the records in lines that ``lines`` returned."""
    return [RoundRecord.from_json(json.loads(line)) for line in content.splitlines()]


def pack(states: Mapping[int, bytes]) -> bytes:
    """Return private states as one sequence of bytes: a line of JSON with ids and sizes, and the states themselves."""
    index = [[client, len(state)] for client, state in states.items()]
    return b"".join((json.dumps(index).encode(), b"\n", *states.values()))


def unpack(content: bytes) -> dict[int, bytes]:
    """Return the private states that ``pack`` was given."""
    index, start, found = content[: content.index(b"\n")], content.index(b"\n") + 1, {}
    for client, size in json.loads(index):
        found[client] = content[start : start + size]
        start += size
    return found
