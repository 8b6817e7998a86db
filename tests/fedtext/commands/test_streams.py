"""Standard streams of the command ``fedtext`` that are full, closed, missing, or of another encoding."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedtext import commands
from tests import ROOT
from tests.fedtext.commands.called import FEDTEXT
from tests.loops import nonempty


def test_an_input_that_is_no_utf_8_reaches_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses the text, and says which; without an input there is none."""
    read: list[str] = []
    for stream, lines in nonempty(((io.TextIOWrapper(io.BytesIO(b"a\ncaf\xe9\n"), "utf-8"), 2), (None, 0))):
        with monkeypatch.context() as replaced:
            replaced.setattr(sys, "stdin", stream)
            assert commands.guarded(lambda _: read.extend(sys.stdin) or 0)() == 0
            sys.stdin.close()
        assert len(read) == lines
        read.clear()


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "--help", "predict --help"])
def test_an_output_on_a_full_disk_is_one_sentence(words: str, unbuffered: str) -> None:
    """Also if all of it fits into the buffer, and without one, where the exception is that of any file."""
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-c", FEDTEXT, *words.split()]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=env, text=True)
    assert done.stderr == "error: the standard output cannot be written: No space left on device\n"
    assert done.returncode == 2


def test_a_full_disk_is_told_from_a_file_on_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def writes_file(_: object) -> int:
        print("said")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.safetensors")

    assert commands.guarded(writes_file)() == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("said\n", "error: model.safetensors cannot be written: No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["nope", "predict nope text"])
def test_the_exit_status_is_the_same_if_no_error_can_be_written(words: str, unbuffered: str) -> None:
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", FEDTEXT, *words.split()], stderr=full, cwd=ROOT, env=env)
    assert done.returncode == 2


def test_a_command_needs_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no streams in a process that was started with closed ones."""

    def writes(_: object) -> int:
        print("said", file=sys.stdout)
        print("said", file=sys.stderr)
        return 2 if sys.stdout.isatty() or sys.stderr.isatty() else 0

    for names in nonempty((["stdout"], ["stderr"], ["stdout", "stderr"])):
        with monkeypatch.context() as closed:
            for name in names:
                closed.setattr(sys, name, None)
            assert commands.guarded(writes)() == 0
            for name in names:
                getattr(sys, name).close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("errors", ["strict", "surrogateescape", "backslashreplace"])
def test_a_character_that_the_output_cannot_encode_ends_nothing(
    encoding: str, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment says how such characters are written, they are written so."""
    written, said = io.BytesIO(), "85.3 \u2026 of \ud800"
    stream = io.TextIOWrapper(written, encoding, errors)
    with monkeypatch.context() as replaced:
        replaced.setattr(sys, "stdout", stream)
        assert commands.guarded(lambda _: print(said, end="") or 0)() == 0
    expected = "replace" if errors != "backslashreplace" else errors
    assert written.getvalue() == said.encode(encoding, expected)


@pytest.mark.parametrize(
    "words",
    ["--help", "--version", "--keys", "--completion bash", "ls", "run --help", "predict --help", "corpora demo.yaml"],
)
def test_a_command_ends_quietly_if_nobody_reads_its_output(words: str, tmp_path: Path) -> None:
    """Also if all of it fits into the buffer, which is written when the process ends.

    The status is that of a process that wrote to a closed pipe, but for help that argparse prints, which ignores it.
    """
    unread, pipe = os.pipe()
    os.close(unread)
    env = os.environ | {"FEDTEXT_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FEDTEXT, *words.split()], stdout=pipe, stderr=subprocess.PIPE, cwd=ROOT, env=env
    )
    os.close(pipe)
    assert done.stderr == b""
    assert done.returncode in ({0, 141} if words.endswith(" --help") else {141})
