"""Local updates of an actor share calls if they are short and their payloads small."""

import math
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from actors.calls import BYTES, CALLS, SECONDS, grouped
from tests.loops import nonempty

ALONE = [[client] for client in range(40)]


def sizes(seconds: float, bytes_up: int, stacks: list[list[int]] = ALONE) -> list[int]:
    """Return the number of stacks in each call, where the only client known took this long and sent this much."""
    return [len(call) for call in grouped(stacks, {100: seconds, 101: 0.0}, {100: bytes_up, 101: 0}, 1)]


def test_in_the_first_round_updates_are_slow_and_as_large_as_the_parameters() -> None:
    assert grouped(ALONE, {}, {}, 1_000) == [ALONE[start : start + 3] for start in range(0, 40, 3)]
    assert grouped(ALONE, {}, {}, BYTES // 2) == [ALONE[start : start + 2] for start in range(0, 40, 2)]
    assert grouped(ALONE, {}, {}, 2 * BYTES) == [[members] for members in ALONE]


def test_short_local_updates_share_a_call_up_to_its_seconds() -> None:
    assert sizes(SECONDS / 50, 1) == [40]
    assert sizes(SECONDS / 10.5, 1) == [10, 10, 10, 10]
    assert sizes(SECONDS / 10.5, 1, [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]) == [5, 1]


def test_long_local_updates_share_about_sixteen_calls() -> None:
    assert sizes(60.0, 1) == [3] * 13 + [1]
    assert sizes(60.0, 1, ALONE[:16]) == [1] * 16


def test_large_payloads_do_not_share_a_call() -> None:
    assert sizes(SECONDS / 50, BYTES // 4) == [4] * 10
    assert sizes(SECONDS / 50, BYTES) == [1] * 40
    assert sizes(60.0, 2 * BYTES) == [1] * 40


def test_every_client_has_its_own_seconds_and_bytes() -> None:
    seconds = {0: SECONDS, 1: SECONDS / 4, 2: SECONDS / 4, 3: SECONDS / 4}
    assert grouped([[0], [1], [2], [3]], seconds, dict.fromkeys(range(4), 1), 1) == [[[0]], [[1], [2], [3]]]
    large = {0: 1, 1: BYTES, 2: 1, 3: 1}
    assert grouped([[0], [1], [2], [3]], dict.fromkeys(range(4), 0.0), large, 1) == [[[0]], [[1]], [[2], [3]]]


@given(
    known=st.dictionaries(st.integers(0, 59), st.tuples(st.floats(0, 1), st.integers(0, BYTES)), min_size=1),
    size=st.integers(1, 4),
)
def test_calls_keep_the_order_and_the_limits(known: dict[int, tuple[float, int]], size: int) -> None:
    stacks = [list(range(start, min(60, start + size))) for start in range(0, 60, size)]
    seconds, bytes_up = {k: v[0] for k, v in known.items()}, {k: v[1] for k, v in known.items()}
    calls = grouped(stacks, seconds, bytes_up, 1)
    assert list(chain(*calls)) == stacks
    for call in nonempty(calls):
        clients = list(chain(*call))
        took = sum(seconds.get(client, max(seconds.values())) for client in clients)
        sent = sum(bytes_up.get(client, max(bytes_up.values())) for client in clients)
        assert len(call) == 1 or sent <= BYTES
        assert took <= SECONDS + 1e-9 or len(call) <= math.ceil(len(stacks) / CALLS)
