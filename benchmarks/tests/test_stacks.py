"""The benchmark of clients trained side by side."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks import stacks
from tests.loops import nonempty


def test_a_small_measurement_has_each_size_and_pairs_two_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "CLIENTS", 64)
    row = stacks.measured("fedavg", 4, (1, 10, False), 2)
    assert (row["method"], row["hidden"], row["texts"]) == ("fedavg", 4, "1 of 10")
    times = [row[name] for name in nonempty(["alone", "stacks of 8", "stacks of 16", "stacks of 32"])]
    assert all(time["runs"] == 2 and time["min"] > 0 for time in times)
    assert row["8 / 32"]["runs"] == 2


def test_unequal_clients_have_as_many_texts_in_the_middle_and_few_have_far_more() -> None:
    counts = np.array([len(client.train) for client in stacks.corpus(8, 10, True).clients])
    assert 7 <= np.median(counts) <= 9
    assert counts.max() > 3 * np.median(counts)
    assert {len(client.train) for client in stacks.corpus(8, 10, False).clients} == {8}


def test_it_does_without_ray() -> None:
    code = "import sys, benchmarks.stacks; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
