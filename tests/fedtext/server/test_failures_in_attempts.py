"""Clients that fail in attempts at a round with masks alone: the attempt whose sum was opened is opened again."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import UserError
from fedtext.messages import Reply
from fedtext.server.repeats import TooFewClientsError
from fedtext.server.secure import SecureAggregation
from tests import tiny
from tests.fedtext.server.test_failures_under_noise import CORPUS, FOUR, MASKED, SKIP
from tests.loops import nonempty


class FailingInAttempts(LocalFleet):
    """The first clients of an attempt fail, as many as are given for it."""

    failing: Sequence[int] = ()
    attempt = 0

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        fails = dict(enumerate(self.failing)).get(self.attempt, 0)
        self.attempt += 1
        for reply in super().train(handle, round_, cohort):
            yield Reply(reply.client, error="MemoryError") if reply.client in sorted(cohort)[:fails] else reply


ATTEMPTS: dict[str, Any] = {
    "server": MASKED,
    "training": tiny.TRAINING | {"rounds": 2},
    "checkpoint": {"every": 2},
    "participation": SKIP | FOUR | {"fraction": 0.85},
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[int]]]:
    """The attempts whose masks are asked for, and the clients in their sums."""
    pytest.importorskip("cryptography")
    sums, ask = list[tuple[int, list[int]]](), SecureAggregation.open

    def asked(secure: SecureAggregation, total: Any, round_: int, attempt: int) -> Any:
        sums.append((attempt, sorted(total.members)))
        return ask(secure, total, round_, attempt)

    monkeypatch.setattr(SecureAggregation, "open", asked)
    return sums


def attempted(folder: Path, failing: Sequence[int], **changes: Any) -> Any:
    made = tiny.federation(tiny.experiment(**(ATTEMPTS | changes)), CORPUS, FailingInAttempts, folder)
    made.fleet.failing = failing
    return made


def test_the_same_attempt_at_a_round_is_opened_again_whoever_fails(tmp_path: Path, opened: Any) -> None:
    """The sums of two attempts differ by the clients of one that are not in the other."""
    next(attempted(tmp_path, [2, 0]).run())
    assert opened == [(2, opened[0][1])]
    for failing in nonempty(([], [3, 0])):  # also if the attempt that was given up has even fewer
        next(attempted(tmp_path, failing).run())
    assert opened == [opened[0]] * 3
    with pytest.raises(UserError, match="round 1: other clients failed"):
        next(attempted(tmp_path, [0, 1]).run())
    assert opened == [opened[0]] * 3


def test_an_attempt_that_was_opened_is_not_given_up_for_another_one(tmp_path: Path, opened: Any) -> None:
    next(attempted(tmp_path, [0]).run())
    with pytest.raises(UserError, match="round 1: other clients failed"):
        next(attempted(tmp_path, [2, 0]).run())
    assert len(opened) == 1


def test_clients_that_fail_in_one_attempt_take_part_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the masks of the first one could not be removed, for which failures have been written down by then."""
    pytest.importorskip("cryptography")
    ask = SecureAggregation.open

    def refused(secure: SecureAggregation, total: Any, round_: int, attempt: int) -> Any:
        if attempt == 1:
            raise TooFewClientsError("1 of the 3 neighbours answer", "lower threshold")
        return ask(secure, total, round_, attempt)

    monkeypatch.setattr(SecureAggregation, "open", refused)
    for seed in nonempty(range(3)):
        record = next(attempted(tmp_path / str(seed), [1, 0], seed=seed).run())
        assert (record.metrics["round_attempts"], record.metrics["clients_failed"]) == (2, 1)


def test_a_round_of_which_nothing_was_opened_can_be_begun_anew(tmp_path: Path, opened: Any) -> None:
    """As after a failure of all its attempts, which a resumed run does not find written down."""
    with pytest.raises(UserError, match="fewer than the 4"):
        next(attempted(tmp_path, [2, 2, 2]).run())
    assert not opened
    next(attempted(tmp_path, []).run())
    assert [attempt for attempt, _ in opened] == [1]
