"""What is counted of a round."""

from collections.abc import Iterator
from typing import Any

import pytest

from actors import metrics
from actors.metrics import COUNTERS, EXPORTED, TrialMetrics, stragglers
from fedtext.records import RoundRecord
from tests import tiny

Set = dict[tuple[str, str], float]


class Kept:
    """Ray's counters and gauges, that keep what they are given instead of sending it to an agent."""

    def __init__(self, kept: Set, name: str, description: str, tags: tuple[str, ...]) -> None:
        self.kept, self.name, self.tags = kept, name, tags

    def inc(self, value: float, tags: dict[str, str]) -> None:
        assert value > 0, "Ray refuses this"
        assert tuple(tags) == self.tags
        key = self.name, tags["method"]
        self.kept[key] = self.kept.get(key, 0.0) + value

    def set(self, value: float, tags: dict[str, str]) -> None:
        assert tuple(tags) == self.tags
        self.kept[self.name, tags["trial"]] = value


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Set]:
    found: Set = {}

    def made(*words: Any) -> Kept:
        return Kept(found, *words)

    monkeypatch.setattr(metrics.ray_metrics, "Counter", made)
    monkeypatch.setattr(metrics.ray_metrics, "Gauge", made)
    monkeypatch.setattr(metrics, "_keep_setting", lambda: None)
    for cached in (metrics._metric, metrics._begin_counters):
        cached.cache_clear()
    yield found
    for cached in (metrics._metric, metrics._begin_counters):
        cached.cache_clear()


def record(round_: int, **more: float) -> RoundRecord:
    costs = {"round_seconds": 5.0, "train_seconds": 4.0, "train_cpu_seconds": 6.0}
    traffic = {"bytes_up": 700.0, "bytes_down": 0.0, "clients_trained": 8.0}
    return RoundRecord(round_, 0.0, costs | traffic | more, clients={"a": {"Ag": 0.5}} if round_ == 2 else {})


def test_rounds_are_summed_up_by_method_and_shown_by_trial(kept: Set) -> None:
    trial = TrialMetrics(tiny.experiment("fedavg"), "01-fedavg")
    trial.begin(2)
    assert {name for name, _ in kept} >= {counter.name for counter in COUNTERS}, "every counter begins with the trial"
    trial.completed(record(1), [1.0, 1.0, 1.0, 2.5])
    trial.completed(record(2, clients_failed=3.0), [1.0])
    shown = {name.removeprefix("fedtext_"): value for (name, _), value in kept.items()}
    assert {tag for _, tag in kept} == {"fedavg", "01-fedavg"}
    assert (shown["rounds"], shown["round"], shown["rounds_planned"], shown["running"]) == (2, 2, 2, 1)
    assert (shown["round_seconds"], shown["last_round_seconds"]) == (10, 5)
    assert (shown["evaluation_seconds"], shown["last_evaluation_seconds"]) == (1, 1), "the second round was evaluated"
    assert (shown["local_updates"], shown["clients_per_second"], shown["clients_failed"]) == (16, 2, 3)
    assert (shown["bytes_up"], shown["last_bytes_up"], shown["client_cpu_seconds"]) == (1400, 700, 12)
    assert (shown["stragglers"], shown["last_stragglers"]) == (1, 0)
    assert shown["bytes_down"] == shown["retries"] == shown["late_updates"] == metrics.NOTHING
    trial.add(retries=1, late_updates=2, trials_failed=1)
    assert kept["fedtext_retries", "fedavg"] == 1.0, "what a counter begins with vanishes in it"
    trial.end()
    assert kept["fedtext_running", "01-fedavg"] == 0


def test_only_the_gauges_of_the_present_trial_are_set_again(kept: Set) -> None:
    first = TrialMetrics(tiny.experiment("fedavg"), "00-fedavg")
    first.begin(3)
    assert {tags[-1] for tags in metrics._latest} == {"00-fedavg"}
    second = TrialMetrics(tiny.experiment("fedavg"), "01-fedavg")
    assert metrics._latest == {}
    second.gpu_memory(used=False)
    assert metrics._latest == {("fedtext_gpu_memory_bytes", "tiny", "fedavg", "01-fedavg"): 0.0}
    second.end()
    assert metrics._latest == {}


def test_a_second_trial_in_a_process_adds_nothing_to_counters(kept: Set) -> None:
    """An increase, however small, would be one to Prometheus."""
    for case in ("00-fedavg", "01-fedavg"):
        TrialMetrics(tiny.experiment("fedavg"), case).begin(3)
    assert {kept[counter.name, "fedavg"] for counter in COUNTERS} == {metrics.NOTHING}


def test_stragglers_take_more_than_twice_the_median() -> None:
    assert stragglers([]) == 0
    assert stragglers([3.0]) == 0
    assert stragglers([1.0, 1.0, 2.0]) == 0
    assert stragglers([1.0, 1.0, 1.0, 2.1, 9.0]) == 2


def test_names_are_those_of_prometheus() -> None:
    assert EXPORTED["fedtext_rounds"].series == "ray_fedtext_rounds_total"
    assert EXPORTED["fedtext_round"].series == "ray_fedtext_round"
