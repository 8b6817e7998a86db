"""Servers of trials that hang: they are killed, and Tune starts their trials again.

The process of a trial's server touches a file every few seconds. The driver looks at these files: the server's bundle
is on the driver's machine (``Plan.bundles``). What counts is how often the driver has found a file untouched, so that a
machine that slept, or a driver that was stopped, kills nothing.
"""

import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

BEAT_S = 2.0  # between two beats of a server, and between two looks of the driver


@cache
def _folder() -> TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fedtext-servers-", ignore_cleanup_errors=True)


def file_of(case: str) -> Path:
    """Return the file that the server of a case is to write, in the driver."""
    return Path(_folder().name) / f"{case}.json"


@contextmanager
def beating(file: Path | None, limit_s: float) -> Iterator[None]:
    """Touch a file again and again during the block, in a thread of the process that is to be watched.

    Args:
        file: The file, which is written first; None: there is none.
        limit_s: Seconds without a beat after which this process counts as one that hangs.
    """
    if file is None:
        yield
        return
    process = psutil.Process()
    content = json.dumps({"pid": process.pid, "started": process.create_time(), "limit_s": limit_s})

    def beat() -> None:
        with suppress(OSError):  # no room for the file yet, or the driver has gone, and no process watches it then
            try:
                os.utime(file)  # needs no room on a disk that is full
            except FileNotFoundError:
                draft = file.with_suffix(f".{process.pid}")
                draft.write_text(content)
                os.replace(draft, file)

    with suppress(OSError):
        file.unlink()  # that of a server of the same trial that was killed names another process
    try:
        with repeated(beat):
            yield
    finally:
        with suppress(OSError):
            file.unlink()


@contextmanager
def watching() -> Iterator[None]:
    """Kill servers that hang during the block, in a thread of the driver."""
    silent = dict[Path, tuple[int, float]]()  # the time of a file, and for how many seconds it has had that

    def look() -> None:
        for file in Path(_folder().name).glob("*.json"):
            with suppress(OSError, ValueError):  # it was removed meanwhile
                content, now = json.loads(file.read_text()), file.stat().st_mtime_ns
                before, seconds = silent.get(file, (0, 0.0))
                silent[file] = now, seconds + BEAT_S if now == before else 0.0
                if silent[file][1] > content["limit_s"]:
                    _end(file, content)
                    del silent[file]

    with repeated(look):
        yield


@contextmanager
def repeated(what: Callable[[], None]) -> Iterator[None]:
    """Call a function every ``BEAT_S`` seconds during the block, in a thread."""
    over = threading.Event()

    def repeat() -> None:
        while True:
            what()
            if over.wait(BEAT_S):
                return

    thread = threading.Thread(target=repeat, name=what.__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _end(file: Path, content: dict[str, float]) -> None:
    """Kill the process that wrote a file, unless it has ended and another one has its number."""
    file.unlink(missing_ok=True)
    with suppress(psutil.Error):
        process = psutil.Process(int(content["pid"]))
        if process.create_time() == content["started"]:
            said = "the server of %s has not responded for %g s: its process is killed, and the trial started again"
            logging.getLogger(__name__).warning(said, file.stem, content["limit_s"])
            process.kill()
