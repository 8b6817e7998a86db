"""Messages about blocks of code that take long."""

import threading

import pytest

from fedtext.runtime.slow import said_if_slow


def test_it_is_said_once_if_a_block_takes_longer() -> None:
    said, told = threading.Event(), list[str]()

    def say() -> None:
        told.append("slow")
        said.set()

    with said_if_slow(0.01, say):
        assert said.wait(60)
    with pytest.raises(ZeroDivisionError), said_if_slow(3600, say):
        1 / 0  # noqa: B018
    assert told == ["slow"]
    assert not [
        each for each in threading.enumerate() if isinstance(each, threading.Timer) and not each.finished.is_set()
    ]


def test_a_block_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", none_left)
    with said_if_slow(0, lambda: None):
        done = True
    assert done
