"""How long the server waits for client actors."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import GetTimeoutError

from actors.fleet import RayFleet
from actors.patience import HungActorsError, Measured, allowed, expected, told
from fedtext.messages import Reply
from tests.loops import nonempty


@pytest.mark.parametrize(
    ("expected_s", "seconds"), [(None, 3600.0), (0.0, 60.0), (2.5, 85.0), (353.9, 3599.0), (400.0, 3600.0)]
)
def test_it_waits_for_a_multiple_of_what_is_expected(expected_s: float | None, seconds: float) -> None:
    assert allowed(expected_s, 60.0, 3600.0) == seconds


def test_the_slowest_actor_is_expected_and_unknown_clients_are_as_slow_as_any() -> None:
    seconds = {0: 1.0, 1: 2.0, 2: 4.0}
    assert expected({}, [[0], [1]]) is None
    assert expected(seconds, [[0, 1], [2]]) == 4.0
    assert expected(seconds, [[0, 1], [7, 1], []]) == 6.0


@pytest.mark.parametrize(("names", "sentence"), [("a", "a"), ("abc", "a, b, c"), ("abcde", "a, b, c and 2 more")])
def test_not_all_names_are_told(names: str, sentence: str) -> None:
    assert told(list(names)) == sentence


def quick() -> RayFleet:
    """A fleet of one actor, of which an earlier attempt, in processes that were warm, took a thousandth of a second."""
    fleet = object.__new__(RayFleet)
    fleet.measured = Measured({0: 0.001, 1: 0.001}, {"host": 1.0})
    fleet.hang, fleet.timeout, fleet.audits, fleet.settled, fleet.folds, fleet.stack = (
        60.0,
        300.0,
        False,
        True,
        False,
        1,
    )
    fleet.bytes_up, fleet.seconds, fleet.home, fleet.size, fleet.left_out = {}, {}, {0: 0, 1: 0}, 1, ()
    fleet.actors = [SimpleNamespace(train=SimpleNamespace(remote=lambda *given: "a call"))]
    fleet.clients = [SimpleNamespace(name="a"), SimpleNamespace(name="b")]  # type: ignore[assignment]
    return fleet


def test_what_was_given_up_is_waited_for_longer_by_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its actors may have just started, and load and compile what those of the first one had."""
    asked: list[float] = []

    def never(calls: list[Any], timeout: float) -> Any:
        asked.append(timeout)
        raise GetTimeoutError

    def nothing(calls: list[Any], timeout: float) -> Any:
        asked.append(timeout)
        return [], calls

    monkeypatch.setattr("actors.caller.ray", SimpleNamespace(get=never))
    monkeypatch.setattr("actors.fleet.ray", SimpleNamespace(wait=nothing))
    fleet = quick()
    for limit, error in nonempty(((70.0, HungActorsError), (600.0, TimeoutError))):
        with pytest.raises(error):
            fleet._get(["a call"], 600.0, "start the client actors", "host")
        assert asked.pop() == limit
    for limit, error in nonempty(((60.02, HungActorsError), (300.0, TimeoutError))):
        fleet.settled = True
        with pytest.raises(error):
            list(fleet.train(None, 1, [0, 1]))
        assert asked.pop() == pytest.approx(limit)


def test_clients_with_different_parameters_train_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ``server.buffer``: every call has been made before the first reply is awaited, and all of them count."""
    fleet, made = quick(), dict[str, tuple[Any, list[list[int]]]]()

    def remote(handle: Any, round_: int, stacks: list[list[int]], *_: Any) -> str:
        made[name := f"call {len(made)}"] = handle, stacks
        return name

    def wait(calls: list[str], timeout: float) -> Any:
        assert len(made) == 2
        return calls[-1:], calls[:-1]

    def get(calls: list[str], timeout: float) -> Any:
        return [[Reply(i, metrics={"seconds": 1.0 + i}) for i in made[call][1][0]] for call in calls]

    fleet.actors = [SimpleNamespace(train=SimpleNamespace(remote=remote))] * 2
    fleet.home = {0: 0, 1: 1}
    monkeypatch.setattr("actors.caller.ray", SimpleNamespace(get=get))
    monkeypatch.setattr("actors.fleet.ray", SimpleNamespace(wait=wait))
    replies = list(fleet.train_each([("older", [1]), ("newer", [0])], 3))
    assert [reply.client for reply in replies] == [0, 1]
    assert list(made.values()) == [("older", [[1]]), ("newer", [[0]])]
    assert (sorted(fleet.took), fleet.seconds) == ([1.0, 2.0], {0: 1.0, 1: 2.0})
