"""The rule: an input is accepted, or it is refused with one clear sentence and exit status 2."""

import io
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtext.commands.guard import guarded

PATIENCE = 120.0  # s of CPU until anything is given up: what is accepted may be large
LONGEST = 2000  # characters of a sentence
ACCEPTED, REFUSED = 0, 2


class TooLongError(BaseException):
    """The time is up. It is no Exception, which code might handle."""


@dataclass(frozen=True)
class Verdict:
    """What became of an input.

    Attributes:
        status: The exit status; None if an exception went through.
        said: What was written to stderr, or the traceback.
        violation: What is wrong with that; empty if nothing is.
        seconds: CPU time until it was refused.
    """

    status: int | None
    said: str
    violation: str
    seconds: float = 0.0

    def broken(self, most: float) -> str:
        """Return what is wrong, also if the refusal took more seconds than ``most``; empty if nothing is."""
        return self.violation or (f"is refused after {self.seconds:.0f} s of CPU" if self.seconds > most else "")


def judged(call: Callable[[], object], home: Path, failed: bool = False) -> Verdict:
    """Call a command's body as the command does, and judge what becomes of it.

    Args:
        call: What the command does.
        home: The folder in which an input that is refused must change nothing.
        failed: Whether the exit status 1 of failed training is as good as 0.
    """

    def main(words: Sequence[str] | None) -> int:
        call()
        return ACCEPTED

    before, stderr, start = _listed(home), io.StringIO(), time.process_time()
    try:
        with redirect_stderr(stderr), redirect_stdout(io.StringIO()), within(PATIENCE):
            status = guarded(main)()
    except TooLongError:
        return Verdict(None, "", f"takes more than {PATIENCE:g} s of CPU, at {_end(traceback.format_exc())}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Verdict(None, traceback.format_exc(), f"raises {type(error).__name__}: {str(error)[:300]}")
    said = stderr.getvalue()
    if status == ACCEPTED or (failed and status == 1):
        return Verdict(ACCEPTED, said, "")
    if status != REFUSED:
        return Verdict(status, said, f"ends with status {status}")
    took = time.process_time() - start
    return Verdict(status, said, _unclear(said) or ("changes files" if _listed(home) != before else ""), took)


def _unclear(said: str) -> str:
    """What is wrong with a message; empty if nothing is."""
    _warnings, error, sentences = f"\n{said}".partition("\nerror: ")
    if not error or len(sentences.strip()) < 10:
        return "has no sentence"
    if "Traceback" in said:
        return "shows a traceback"
    lines = sentences.rstrip("\n").split("\n")
    if len(max(lines, key=len)) > LONGEST:
        return f"has a sentence of {len(max(lines, key=len)):,} characters"
    if odd := sorted({char for line in lines for char in line if not (char.isprintable() or char == "\t")}):
        return f"prints {odd[:5]!r}"
    return ""


def _listed(home: Path) -> list[tuple[str, int]]:
    """The files in a folder, but for MLflow's database, which is made when it is first looked for."""
    found = ((path, path.stat().st_size) for path in home.rglob("*") if path.is_file())
    return sorted((str(path), size) for path, size in found if not path.name.startswith("mlflow.db"))


def _end(text: str) -> str:
    """The last place in the code that a traceback names."""
    places = [line.strip() for line in text.splitlines() if line.strip().startswith("File")]
    return places[-1] if places else "?"


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLongError in the block once this process has used so much CPU."""

    def stop(number: int, frame: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
