"""Ctrl-C, as it is passed on to Tune, which stops its trials on SIGUSR1."""

import os
import signal
from collections.abc import Iterator

import pytest

from actors.interrupt import REPLACED, Interrupted, interruptible


@pytest.fixture
def handlers() -> Iterator[list[object]]:
    """The handlers of before, which the block leaves."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)]
    yield before
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)]
    for number, handler in zip((signal.SIGINT, signal.SIGUSR1), before, strict=True):
        signal.signal(number, handler)
    assert after == before
    assert REPLACED not in os.environ


def tune(asked: list[str | None], interrupts: int) -> None:
    """Handle SIGUSR1 as Tune does, which leaves its handler there, and be interrupted so many times."""
    with interruptible():
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(os.environ.get(REPLACED)))
        for _ in range(interrupts):
            signal.raise_signal(signal.SIGINT)


def test_the_first_ctrl_c_is_passed_on_and_raised_at_the_end(handlers: list[object]) -> None:
    asked = list[str | None]()
    with pytest.raises(Interrupted):
        tune(asked, 1)
    assert asked == ["1"]


def test_the_second_ctrl_c_ends_at_once(handlers: list[object]) -> None:
    asked = list[str | None]()
    with pytest.raises(KeyboardInterrupt) as raised:
        tune(asked, 2)
    assert asked == ["1"]
    assert raised.type is KeyboardInterrupt


def test_before_tune_runs_its_trials_ctrl_c_ends_at_once(handlers: list[object]) -> None:
    with pytest.raises(KeyboardInterrupt) as raised, interruptible():
        signal.raise_signal(signal.SIGINT)
    assert raised.type is KeyboardInterrupt


def test_ctrl_c_that_is_ignored_remains_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            assert os.environ[REPLACED] == "1"
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_ctrl_c_nothing_is_raised(handlers: list[object]) -> None:
    tune([], 0)
