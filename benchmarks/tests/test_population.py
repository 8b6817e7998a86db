"""The benchmark of populations, with small ones."""

import argparse
from pathlib import Path

import pytest

from benchmarks import population
from tests.loops import nonempty


def test_rounds_of_two_populations_train_the_same_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path))
    asked = argparse.Namespace(clients=[20, 60], cohort=3, rounds=2, method="fedavg")
    seconds = population.in_turn(asked)
    assert list(seconds) == [20, 60]
    assert all(nonempty(len(each) == 2 and min(each) > 0 for each in seconds.values()))
    found = [population.alone(clients, asked) for clients in asked.clients]
    assert all(nonempty(set(one) == {"start", "cpu", "peak", "checkpoint"} for one in found))
    federations = [population.started(clients, 2, asked, tmp_path / str(clients)) for clients in asked.clients]
    samples = [[federation.trainees[user].samples for user in range(3)] for federation in federations]
    assert samples[0] == samples[1]
