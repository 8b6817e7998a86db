"""Ctrl-C where Python loses exceptions: the command ends with one sentence and status 130 all the same."""

import subprocess
import sys

import pytest

from tests import ROOT

INTERRUPTED = """
import atexit, os, signal, sys, threading, time
from fedtext.commands.guard import guarded

def interrupt():
    signal.raise_signal(signal.SIGINT)

class Finalized:
    def __del__(self):
        interrupt()

class Failing:
    def __del__(self):
        raise RuntimeError("its process has gone")

def in_a_finalizer():
    Finalized()
    time.sleep(20)

def just_before_the_end():
    Finalized()

def at_the_end():
    atexit.register(interrupt)  # as Ray's shutdown, which takes seconds
    interrupt()

def with_what_fails_then():
    atexit.register(lambda: threading.Thread(target=lambda: 1 / 0).start())
    atexit.register(Failing)
    interrupt()

def while_threads_are_joined():
    def wait():
        while threading.main_thread().is_alive():
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(40)  # as MLflow's threads, for a server that does not answer

    threading.Thread(target=wait).start()
    interrupt()

def main(words):
    globals()[sys.argv[1]]()
    return 0

sys.exit(guarded(main, "--resume RUN continues it")())
"""


PLACES = ["in_a_finalizer", "just_before_the_end", "at_the_end", "with_what_fails_then", "while_threads_are_joined"]


@pytest.mark.parametrize("where", PLACES)
def test_an_interrupt_prints_one_sentence_wherever_it_arrives(where: str) -> None:
    argv = [sys.executable, "-c", INTERRUPTED, where]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted; --resume RUN continues it\n")


def test_what_other_finalizers_raise_is_printed_as_ever() -> None:
    source = INTERRUPTED.replace("globals()[sys.argv[1]]()", "Failing()")
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "RuntimeError: its process has gone" in done.stderr
