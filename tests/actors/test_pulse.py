"""Servers that hang are killed, and no other process."""

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from actors import pulse
from tests.disks import fill, mounted

PROGRAM = """
import sys, time
from pathlib import Path
from actors import pulse
pulse.BEAT_S = 0.05
with pulse.beating(Path(sys.argv[1]), 0.5):
    print("here", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "BEAT_S", 0.05)


@contextmanager
def started(file: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(file)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    with started(pulse.file_of("00-one")) as process:
        yield process


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_that_is_stopped_is_killed_and_one_that_works_is_not(
    server: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pulse.watching():
        time.sleep(1.5)  # three times the limit
        assert server.poll() is None
        server.send_signal(signal.SIGSTOP)
        assert server.wait(60) == -signal.SIGKILL
    assert "the server of 00-one has not responded for 0.5 s" in caplog.text
    assert not pulse.file_of("00-one").exists()


def test_a_server_that_follows_one_that_was_killed_is_watched_too() -> None:
    """It finds the file that the first one has left, which names another process."""
    file = pulse.file_of("00-one")
    with started(file) as first:
        until(file.exists)
        first.kill()
    assert json.loads(file.read_text())["pid"] == first.pid
    with started(file) as second, pulse.watching():
        second.send_signal(signal.SIGSTOP)
        assert second.wait(60) == -signal.SIGKILL


def test_a_server_on_a_full_disk_is_seen_to_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(tmp_path / "disk", "64k") as disk:
        file = disk / "00-one.json"
        monkeypatch.setattr(pulse, "_folder", lambda: SimpleNamespace(name=str(disk)))
        with started(file) as server:
            until(file.exists)
            fill(disk)
            with pulse.watching():
                time.sleep(1.5)  # three times the limit
                assert server.poll() is None


def test_a_process_that_took_the_number_of_one_that_ended_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        file = pulse.file_of("00-two")
        started = psutil.Process(other.pid).create_time() - 1
        file.write_text(json.dumps({"pid": other.pid, "started": started, "limit_s": 0.2}))
        with pulse.watching():
            until(lambda: not file.exists())
        assert other.poll() is None
        other.kill()


def test_the_file_goes_with_the_trial_and_needs_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "00-three.json"
    with pulse.beating(file, 5):
        until(file.exists)
        content = json.loads(file.read_text())
    assert content["limit_s"] == 5
    assert list(tmp_path.iterdir()) == []
    with pulse.beating(tmp_path / "gone" / "00-four.json", 5), pulse.beating(None, 5):
        time.sleep(0.1)
