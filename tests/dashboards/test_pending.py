"""What is said while trials wait."""

import pytest

from dashboards import pending
from dashboards.pending import AGAIN_S, LONGEST_S, Reminder


def test_the_same_message_is_due_ever_less_often_and_another_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(pending.time, "monotonic", lambda: now)
    reminder, told = Reminder(), []
    for _ in range(60 * 60):
        now += 1
        told += [now - 1001] * reminder.due("waiting for 2 CPUs")
    assert told[:5] == [0, AGAIN_S, 3 * AGAIN_S, 7 * AGAIN_S, 15 * AGAIN_S]
    assert told[-1] - told[-2] == LONGEST_S
    assert reminder.due("waiting for 1 CPU")
    assert not reminder.due("waiting for 1 CPU")
    assert not reminder.due("waiting for 3 CPUs"), "sentences that alternate are not printed each time"
    now += AGAIN_S
    assert reminder.due("waiting for 1 CPU")
