"""One command at a time works on a run, and who only looks is in nobody's way."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedtext.runtime import lock as locks
from fedtext.runtime.lock import is_locked, lock, locked


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


def test_a_lock_whose_file_is_removed_is_one_of_the_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with locked(folder, remove=True) as ours:
        assert ours
        assert is_locked(folder)
        monkeypatch.setattr(locks, "PATIENCE_S", 0.0)
        with locked(folder, remove=True) as again:
            assert not again
        assert is_locked(folder), "who has no lock removes none"
    assert not list(folder.iterdir())

    flock, removed = fcntl.flock, list[Path]()

    def removing(file: int, kind: int) -> None:
        if not removed:  # by the command that had the lock, which this one has waited for
            removed.append(folder / ".lock")
            removed[0].unlink()
            folder.rmdir()
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", removing)
    assert lock(folder)
    assert len(removed) == 1
    assert is_locked(folder)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    dies = "import os, sys; from pathlib import Path; from fedtext.runtime.lock import locked\n"
    dies += "with locked(Path(sys.argv[1]), remove=True) as ours: os._exit(3 if ours else 4)"
    assert subprocess.run([sys.executable, "-c", dies, str(tmp_path)]).returncode == 3
    assert (tmp_path / ".lock").is_file()
    assert not is_locked(tmp_path)
    with locked(tmp_path, remove=True) as ours:
        assert ours
    assert not list(tmp_path.iterdir())


def test_a_disk_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(file: int, kind: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with locked(tmp_path) as ours:
        assert ours
    assert lock(tmp_path)
    assert not is_locked(tmp_path)


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
