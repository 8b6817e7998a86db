"""What is said of a command that ends without a word."""

import subprocess
import sys

import pytest

from fedtext.commands.last_words import KILLED
from tests import ROOT

SCRIPT = """
import os, signal, sys
from fedtext.commands.last_words import last_words

with last_words("DO IT AGAIN continues it") as words:
    exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("ends", "status", "said"),
    [
        ("pass", 0, ""),
        ("raise ValueError('reported elsewhere')", 1, None),
        ("raise KeyboardInterrupt", -2, None),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, KILLED),
        ("os._exit(3)", 3, KILLED),
        ("sys.exit(143)", 143, KILLED),
        ("words.end('the cluster is gone')", 1, "the cluster is gone"),
    ],
)
def test_the_last_words_are_said_only_if_nothing_else_is(ends: str, status: int, said: str | None) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, ends], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    if said is None:
        assert "DO IT AGAIN" not in done.stderr
    else:
        assert done.stderr == (said and f"error: {said}; DO IT AGAIN continues it\n")
