"""Freed memory goes back to the system where it is much."""

import os
import subprocess
import sys

import pytest

from fedtext.client import worker
from fedtext.layout import Layout
from fedtext.parameters import initial
from fedtext.runtime import memory
from fedtext.runtime.environment import ENVIRONMENT
from tests import tiny

PROGRAM = """
import numpy as np
from fedtext.runtime.memory import return_freed

def resident():
    return 4096 * int(open("/proc/self/statm").read().split()[1])

before = resident()
for megabytes in {each}:
    some = [np.ones(1 << 20, np.uint8) for _ in range(megabytes)]
    del some
    kept = resident() - before
    print(kept >> 20, return_freed(256 << 20), (resident() - before) >> 20)
"""


def freed(*each: int) -> list[tuple[int, bool, int]]:
    """MB that a process keeps after it has freed so many, whether it returned them, and MB that it has then."""
    run = [sys.executable, "-c", PROGRAM.format(each=each)]
    output = subprocess.run(run, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    rows = map(str.split, output.splitlines())
    return [(int(kept), returned == "True", int(left)) for kept, returned, left in rows]


@pytest.mark.skipif(memory._glibc() is None, reason="not glibc 2.33 or newer")
def test_much_is_returned_and_little_is_kept() -> None:
    """What was returned once is not counted when less is freed later."""
    much, little, again = freed(600, 100, 500)
    assert (much[0] > 500, much[1], much[2] < 200) == (True, True, True)
    assert (little[0] > 80, little[1], little[2] > 80) == (True, False, True)
    assert (again[0] > 400, again[1], again[2] < 200) == (True, True, True)


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    assert not memory.return_freed(-1)


def test_an_evaluation_returns_what_it_has_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all clients of a call."""
    asked: list[None] = []
    monkeypatch.setattr(worker, "return_freed", lambda: asked.append(None))
    experiment, corpus = tiny.experiment(), tiny.corpus(3)
    shared, private = initial(experiment, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    made = worker.Worker(experiment, corpus, corpus.clients, private)
    made.train(flat, 1, [0])
    assert not asked
    made.evaluate(flat, 1, [0, 1, 2], final=False)
    assert len(asked) == 1
