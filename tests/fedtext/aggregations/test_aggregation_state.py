"""What an aggregation keeps over rounds: in the server, in checkpoints, and nowhere else."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from safetensors.numpy import load

from fedtext.aggregations import IndividualAggregation
from fedtext.aggregations.median import Median
from fedtext.config.compatibility import problems
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.messages import Update
from fedtext.server.aggregation_state import AggregationState
from fedtext.state.checkpoint import MOMENTS, Checkpoints
from fedtext.testing import check_aggregation
from fedtext.testing.runs import final
from tests import tiny
from tests.fedtext.server.test_repeats import Failing
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=5)
HALF = {"fraction": 0.6}


class Smoothed(Median):
    """The mean of the median and the last step, and of each client the number of rounds it was in."""

    name: Literal["smoothed"] = "smoothed"  # type: ignore[assignment]

    def server_state(self, shared: Any, clients: int) -> Any:
        return {"z": np.zeros(clients, np.float32)} | {name: np.zeros_like(t) for name, t in shared.items()}

    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        assert list(server) == sorted(server), "the same order in a run and after a checkpoint"
        given = list(updates)
        moved, metrics = self.aggregate(state, given)
        half = np.float32(0.5)
        steps = {name: half * (moved[name] - state[name]) + half * server[name] for name in state}
        seen = np.array(server["z"])
        seen[[update.client for update in given]] += 1
        return {name: state[name] + steps[name] for name in state}, metrics, {"z": seen} | steps


def kept_by(aggregation: IndividualAggregation, **changes: Any) -> Any:
    made = tiny.experiment(**changes)
    return made.model_copy(update={"server": made.server.model_copy(update={"aggregation": aggregation})})


THREE: dict[str, Any] = {"training": tiny.TRAINING | {"rounds": 3}, "participation": HALF}


def test_it_begins_with_all_rows_and_follows_each_round() -> None:
    federation = tiny.federation(kept_by(Smoothed(), **THREE), CORPUS)
    before, step = federation.state, federation.step.aggregation_state
    assert set(step.arrays) == {"z", *before}
    assert all(nonempty(step.arrays[name].shape == tensor.shape for name, tensor in before.items()))
    assert not any(nonempty(array.any() for array in step.arrays.values()))
    for record in nonempty(federation.run()):
        after = federation.state
        for name in nonempty(after):
            assert np.allclose(step.arrays[name], after[name] - before[name], atol=1e-6)
        assert step.arrays["z"].sum() == 3 * record.round
        before = after
    assert np.any(step.arrays[TABLE])


def test_it_is_in_a_checkpoint_and_a_continued_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    experiment = kept_by(Smoothed(), **THREE, server={"optimizer": {"momentum": 0.5}})
    whole = final(experiment, CORPUS)
    final(experiment, CORPUS, tmp_path, rounds=2)
    written = load((Checkpoints(tmp_path, "").folder / "round-000002" / MOMENTS).read_bytes())
    shared = tiny.federation(experiment, CORPUS).state
    assert set(written) == {"m"} | {f"#aggregation/{name}" for name in ("z", *shared)}
    assert final(experiment, CORPUS, tmp_path) == whole
    assert whole[0] != final(kept_by(Median(), **THREE, server={"optimizer": {"momentum": 0.5}}), CORPUS)[0]


def test_one_that_keeps_nothing_writes_nothing(tmp_path: Path) -> None:
    final(kept_by(Median(), **THREE), CORPUS, tmp_path, rounds=2)
    assert not (Checkpoints(tmp_path, "").folder / "round-000002" / MOMENTS).exists()


def test_clients_neither_receive_nor_send_it_and_no_guarantee_counts_it() -> None:
    uplink = {"uplink": [{"clip": {"norm": 0.5}}, {"gaussian": {"sigma": 0.01}}]}
    own, median = (tiny.federation(kept_by(each, **THREE, **uplink), CORPUS) for each in (Smoothed(), Median()))
    for record, other in nonempty(zip(own.run(), median.run(), strict=True)):
        for metric in ("bytes_up", "bytes_down"):
            assert record.metrics[metric] == other.metrics[metric]
    assert own.coordinates == median.coordinates
    assert own.ledger(3) == median.ledger(3)


class First(Smoothed):
    """It reads one update alone."""

    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        return super().server_step(server, state, [next(iter(updates))])


@pytest.mark.parametrize("aggregation", [Smoothed(), First()], ids=["all", "first"])
def test_a_repeated_round_begins_with_what_was_kept_before(aggregation: IndividualAggregation) -> None:
    """Updates of an attempt that too few clients complete are not counted, in ``z`` as in the parameters."""
    participation = {"fraction": 0.6, "min_clients": 2, "on_client_error": "skip"}
    made = kept_by(aggregation, training=THREE["training"], participation=participation)
    federation = tiny.federation(made, CORPUS, Failing)
    cohorts = [federation._sample(1, attempt).clients for attempt in (1, 2)]
    federation.fleet.failing = {1: set(cohorts[0][1:])}
    next(federation.run())
    assert federation.history[0].metrics["round_attempts"] == 2
    seen = federation.step.aggregation_state.arrays["z"]
    read = cohorts[1][:1] if isinstance(aggregation, First) else cohorts[1]
    assert np.array_equal(seen, np.isin(range(5), read))


def test_it_cannot_be_changed_from_outside() -> None:
    begun = {"b": np.zeros(2, np.float32), "a": np.zeros((), np.float32)}

    class Own(Smoothed):
        def server_state(self, shared: Any, clients: int) -> Any:
            return begun

    kept = AggregationState(Own(), {"w": np.zeros(2, np.float32)}, 5)
    begun["b"] += 1
    assert list(kept.arrays) == ["a", "b"]
    assert kept.arrays["a"].shape == ()
    assert not kept.arrays["b"].any()
    with pytest.raises(ValueError, match="read-only"):
        np.add(kept.arrays["b"], 1, out=kept.arrays["b"])  # type: ignore[call-overload]


class Stated(Smoothed):
    """What its hooks return is the test's."""

    def __init__(self, begun: Any, returned: Any) -> None:
        super().__init__()
        self.__dict__["hooks"] = begun, returned

    def server_state(self, shared: Any, clients: int) -> Any:
        return self.__dict__["hooks"][0]

    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        return self.__dict__["hooks"][1]


W, V = {"w": np.zeros(2, np.float32)}, {"v": np.zeros(3, np.float32)}


@pytest.mark.parametrize(
    ("begun", "returned", "problem"),
    [
        (None, (), "server_state returned a state of type NoneType, and not a mapping of arrays by name"),
        ({1: W["w"]}, (), "server_state returned a state of type dict, and not a mapping of arrays by name"),
        ({"v": [1.0]}, (), "server_state returned v as list, and not as float32$"),
        ({"v": np.zeros(3)}, (), r"server_state returned v as float64 of \(3,\), and not as float32 of \(3,\)"),
        (V, W, "server_step returned dict, and not three mappings: the parameters, metrics, and what is kept"),
        (V, (W, {}), "server_step returned 2 values, and not three mappings"),
        (V, (W, 1.0, V), "server_step returned tuple, and not two mappings"),
        (V, (V, {}, V), "server_step returned parameters v, and the model has w"),
        (V, (W, {}, None), "server_step returned a state of type NoneType"),
        (V, (W, {}, {}), "server_step returned a state of nothing, and server_state has v"),
        (V, (W, {}, V | W), "server_step returned a state of v, w, and server_state has v"),
        (V, (W, {}, {"v": W["w"]}), r"server_step returned v as float32 of \(2,\), and not as float32 of \(3,\)"),
        (V, (W, {}, {"v": 0.5}), r"server_step returned v as float, and not as float32 of \(3,\)"),
    ],
)
def test_what_the_hooks_return_is_checked(begun: Any, returned: Any, problem: str) -> None:
    aggregation = Stated(begun, returned)
    with pytest.raises(UserError, match=f"^aggregation smoothed: {problem}"):
        AggregationState(aggregation, W, 5).aggregate(aggregation, W, [], lambda update: 1.0)


def test_what_is_of_rounds_or_sums_refuses_it() -> None:
    paced = {"participation": {"pace": {}}}
    kept = kept_by(Smoothed(), **paced, server={"buffer": {"size": 2}})
    (said,) = problems(kept)
    assert said.startswith("server.buffer: aggregation smoothed has a state at the server, which is defined for rounds")
    assert not list(problems(kept_by(Median(), **paced, server={"buffer": {"size": 2}})))
    secured = kept_by(Smoothed(), server={"secure_aggregation": {}})
    assert any("the server sees no single update, and aggregation smoothed needs" in each for each in problems(secured))
    noised: dict[str, Any] = {"uplink": [{"clip": {"norm": 0.5}}], "participation": {"sampling": "poisson"}}
    noisy = kept_by(Smoothed(), **noised, server={"weights": "uniform", "noise": {"multiplier": 1}})
    assert any("added to a sum of updates, and aggregation smoothed does not" in each for each in problems(noisy))


class _Faulty(Smoothed):
    """An aggregation of this test."""

    name: Literal["faulty"] = "faulty"  # type: ignore[assignment]


class InPlace(_Faulty):
    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        server["z"][0] += 1
        return *self.aggregate(state, updates), server


class Growing(_Faulty):
    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        return *self.aggregate(state, updates), server | {"new": server["z"]}


class Remembering(_Faulty):
    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        moved, metrics, following = super().server_step(server, state, updates)
        count = vars(type(self)).get("count", 0)
        type(self).count = count + 1  # type: ignore[attr-defined]
        return moved, metrics, following | {"z": following["z"] + np.float32(count)}


class Resting(_Faulty):
    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        given = list(updates)
        rows = np.float32(sum(len(update.tensors[TABLE]) for update in given))
        moved, metrics, following = super().server_step(server, state, given)
        return moved, metrics, following | {"z": following["z"] + rows}


class Begun(_Faulty):
    def server_state(self, shared: Any, clients: int) -> Any:
        shared[TABLE][...] = 0
        return super().server_state(shared, clients)


class Wide(_Faulty):
    def server_state(self, shared: Any, clients: int) -> Any:
        return {"z": np.zeros(clients)}


class Pair(_Faulty):
    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        return self.aggregate(state, updates)


class Endless(Median):
    """What it keeps is never read."""

    name: Literal["endless"] = "endless"  # type: ignore[assignment]

    def server_state(self, shared: Any, clients: int) -> Any:
        return dict(shared)


class Beginless(Median):
    """What it keeps is never begun."""

    name: Literal["beginless"] = "beginless"  # type: ignore[assignment]

    def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
        return *self.aggregate(state, updates), server


class Idle(IndividualAggregation):
    """It has no hook at all."""

    name: Literal["idle"] = "idle"
    secure = "nothing"


FOUND: list[tuple[IndividualAggregation, str]] = [
    (InPlace(), "server_step of faulty changes what was kept: return new arrays"),
    (Growing(), "server_step of faulty returned a state of .*new, and server_state has"),
    (Remembering(), "server_step of faulty returns other bits from the same state"),
    (Resting(), "server_step of faulty does not treat rows that a client does not have as unchanged"),
    (Begun(), "server_state of faulty changes its arguments"),
    (Wide(), "server_state of faulty returned z as float64"),
    (Pair(), "server_step of faulty returns no three mappings"),
    (Endless(), "Endless lacks server_step"),
    (Beginless(), "Beginless lacks server_state"),
    (Idle(), "Idle lacks aggregate"),
]


@pytest.mark.parametrize(("aggregation", "sentence"), FOUND, ids=lambda value: type(value).__name__)
def test_the_check_finds_what_is_wrong(aggregation: IndividualAggregation, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_aggregation(aggregation)


def test_aggregate_is_the_first_round() -> None:
    class Own(IndividualAggregation):
        name: Literal["own"] = "own"
        server_state = Smoothed.server_state

        def server_step(self, server: Any, state: Any, updates: Any, weight: Any = None) -> Any:
            assert server["z"].shape == (4,)
            moved = {name: tensor + updates[0].tensors[name] for name, tensor in state.items()}
            return moved, {"seen": float(len(updates))}, server

    state = {"w": np.ones(2, np.float32)}
    after, metrics = Own().aggregate(state, iter([Update(3, 1, state), Update(1, 1, state)]))
    assert after["w"].tolist() == [2, 2]
    assert metrics == {"seen": 2}


def test_the_check_accepts_one_that_keeps_its_promises() -> None:
    check_aggregation(Smoothed())
