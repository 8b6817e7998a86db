"""One command at a time works on a run, and who only looks is in nobody's way."""

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweeps import lock as locks
from sweeps.lock import is_locked, lock, locked


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has locked nothing yet."""
    monkeypatch.setattr(locks, "_LOCKED", set())


@pytest.mark.parametrize("kind", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_a_lock_that_is_held_for_an_instant_is_waited_for(
    kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a list of runs holds it, while it finds out whether a command works on the run."""
    other = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, kind)
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        os.close(other)

    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0))
    assert lock(tmp_path)
    assert len(waited) == 1
    assert is_locked(tmp_path)


def test_a_lock_that_is_kept_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / ".lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        clock = iter(range(100))
        monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=lambda s: None, monotonic=lambda: float(next(clock))))
        assert not lock(tmp_path)
        with locked(tmp_path) as ours:
            assert not ours
    with locked(tmp_path) as ours:
        assert ours
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path), "it ends with the block"
    assert lock(tmp_path)
    with locked(tmp_path) as ours:
        assert ours, "this process has it"
    assert is_locked(tmp_path)
