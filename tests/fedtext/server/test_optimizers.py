"""Server optimizers: two rounds by hand, what they leave alone, and what a killed run remembers."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.aggregations import IndividualAggregation
from fedtext.aggregations.base import State, Weight, samples
from fedtext.config.keys import listing
from fedtext.config.overrides import override
from fedtext.config.server import ServerAdam, ServerOptimizer, ServerSGD, ServerYogi
from fedtext.messages import Update
from fedtext.methods import FedAvg
from fedtext.records import RoundRecord
from fedtext.server.federation import Federation
from fedtext.server.optimizers import Moments, step
from fedtext.state.checkpoint import MOMENTS, Checkpoints
from fedtext.state.fingerprint import fingerprint
from fedtext.state.versions import VERSIONS
from tests import tiny
from tests.checkpoints import SCRATCH

CHANGES = ([0.5, -0.002, 0.0], [0.25, 0.004, 0.0])  # of two rounds


def two_rounds(optimizer: ServerOptimizer) -> list[np.ndarray]:
    flat, moments, states = np.array([1, 2, 3], np.float32), Moments(), []
    for change in CHANGES:
        flat, moments = step(optimizer, flat, np.array(change), moments)
        assert {array.dtype for array in moments.values()} <= {np.dtype(np.float32)}
        states.append(flat)
    return states


@pytest.mark.parametrize(
    ("lr", "momentum", "first", "second"),
    [
        (1.0, 0.0, [1.5, 1.998, 3], [1.75, 2.002, 3]),
        (0.5, 0.0, [1.25, 1.999, 3], [1.375, 2.001, 3]),
        (2.0, 0.0, [2.0, 1.996, 3], [2.5, 2.004, 3]),
        (1.0, 0.9, [1.5, 1.998, 3], [1.5 + 0.9 * 0.5 + 0.25, 1.998 - 0.9 * 0.002 + 0.004, 3]),
        (0.5, 0.9, [1.25, 1.999, 3], [1.25 + 0.5 * 0.7, 1.999 + 0.5 * 0.0022, 3]),
    ],
)
def test_sgd_by_hand(lr: float, momentum: float, first: list[float], second: list[float]) -> None:
    got = two_rounds(ServerSGD(lr=lr, momentum=momentum))
    assert np.allclose(got[0], first, rtol=1e-6)
    assert np.allclose(got[1], second, rtol=1e-6)


@pytest.mark.parametrize("yogi", [False, True], ids=["adam", "yogi"])
def test_adaptive_optimizers_by_hand(yogi: bool) -> None:
    """beta1 = 0.9, beta2 = 0.99, tau = 0.001, lr = 0.1, number by number as the paper writes it."""
    optimizer = (ServerYogi if yogi else ServerAdam)(lr=0.1)
    got = two_rounds(optimizer)
    for place, start in enumerate([1.0, 2.0, 3.0]):
        theta, m, v = start, 0.0, 1e-6
        for round_, change in enumerate(CHANGES):
            delta = change[place]
            m = 0.9 * m + 0.1 * delta
            if yogi:
                sign = (v > delta**2) - (v < delta**2)
                v -= 0.01 * delta**2 * sign
            else:
                v = 0.99 * v + 0.01 * delta**2
            theta += 0.1 * m / (math.sqrt(v) + 1e-3)
            assert got[round_][place] == pytest.approx(theta, rel=1e-6)


def test_yogi_keeps_v_where_the_update_is_as_large() -> None:
    """v = 1/4 from tau^2, and Delta^2 = 1/4: the sign of their difference is 0. Of larger and smaller ones v takes a
    hundredth towards them."""
    _, moments = step(ServerYogi(tau=0.5), np.zeros(3, np.float32), np.array([0.5, 1.0, 0.1]), {})
    assert moments["v"] == pytest.approx([0.25, 0.25 + 0.01, 0.25 - 0.0001])
    assert moments["m"] == pytest.approx([0.05, 0.1, 0.01])


def test_a_row_that_nobody_holds_moves_on_and_is_forgotten_as_it_is_said() -> None:
    for optimizer, factor in ((ServerAdam(lr=0.1), 0.99), (ServerYogi(lr=0.1), 1.0)):
        flat, moments = step(optimizer, np.zeros(1, np.float32), np.array([0.5]), {})
        v = moments["v"].copy()
        later, moments = step(optimizer, flat, np.zeros(1), moments)
        assert later > flat, "by what is left of m"
        assert moments["v"] == pytest.approx(factor * v)


class EachMean(IndividualAggregation):
    """The mean, by a server that looks at each update by itself."""

    name: str = "each_mean"
    secure = ""

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, np.ndarray], Mapping[str, float]]:
        taken = list(updates)
        weight = sum(update.samples for update in taken)
        means = {
            name: tensor + sum(update.samples * update.tensors[name] for update in taken) / np.float32(weight)
            for name, tensor in state.items()
        }
        return means, {}


class Mean(FedAvg):
    """FedAvg that brings this aggregation."""

    @property
    def aggregation(self) -> EachMean:
        return EachMean()


def flat_after(method: Any, server: Any, **changes: Any) -> np.ndarray:
    return tiny.Finished(method, server=server, wire={"rows": "all"}, **changes).flat


def test_the_default_is_plain_averaging_to_the_bit() -> None:
    def mean(start: np.ndarray, federation: Federation, replies: Iterable[Any]) -> np.ndarray:
        total = federation.step.summation.empty()
        for reply in replies:
            total.add(federation.decoder.update(reply.payload, reply.client, start, 1))
        return (start + total.sum_N * (total.scale / total.weight)).astype(np.float32)

    experiment = tiny.experiment(server={"optimizer": "sgd"}, training=tiny.TRAINING | {"rounds": 1})
    assert experiment.server == tiny.experiment().server
    assert experiment.server.optimizer.plain
    federation = tiny.federation(experiment, tiny.TWO, tiny.Recording)
    fleet = federation.fleet
    start = federation.flat.copy()
    list(federation.run())
    assert federation.flat.tobytes() == mean(start, federation, fleet.received).tobytes()
    assert federation.step.moments == {}


@pytest.mark.parametrize("server", [{"lr": 0.5}, {"momentum": 0.9}, {"name": "adam"}, {"name": "yogi", "lr": 0.1}])
def test_a_method_that_aggregates_by_itself_gives_its_step_to_the_optimizer(server: dict[str, Any]) -> None:
    plain = flat_after("fedavg", {})
    got, expected = flat_after(Mean(), {"optimizer": server}), flat_after("fedavg", {"optimizer": server})
    assert np.abs(got - plain).max() > 1e-3
    assert np.allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("method", [Mean(), "fedavg"])
def test_a_round_without_participants_is_no_step(method: Any) -> None:
    away = {"dropout": 0.999}
    after = tiny.Finished(method, server={"optimizer": {"momentum": 0.9}}, participation=away)
    assert [record.metrics["clients_trained"] for record in after.rows] == [0, 0]
    assert np.array_equal(after.flat, after.before)
    assert after.step.moments == {}


@pytest.mark.parametrize("server", [{"momentum": 0.9}, {"name": "adam"}, {"name": "yogi"}])
def test_a_killed_run_goes_on_with_what_the_optimizer_remembers(server: dict[str, Any], tmp_path: Path) -> None:
    experiment = tiny.experiment(server={"optimizer": server}, training=tiny.TRAINING | {"rounds": 4})

    def federation(folder: Path) -> Federation:
        return tiny.federation(experiment, tiny.TWO, folder=folder)

    whole = federation(tmp_path / "whole")
    list(whole.run())
    rows = federation(tmp_path / "killed").run()
    next(rows), next(rows)
    rows.close()
    assert (tmp_path / "killed" / "round-000002" / MOMENTS).exists()
    again = federation(tmp_path / "killed")
    assert len(list(again.run())) == 2
    assert again.flat.tobytes() == whole.flat.tobytes()
    assert {k: v.tobytes() for k, v in again.step.moments.items()} == {
        k: v.tobytes() for k, v in whole.step.moments.items()
    }


def test_a_state_without_moments_is_written_and_read_as_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "one")
    checkpoints.save(np.ones(2, np.float32), {}, [RoundRecord(1, 0.0, {})], {})
    files = sorted(path.name for path in (tmp_path / "round-000001").iterdir())
    assert files == ["SHA256SUMS", "records-000001-000001.jsonl", "server.f32", "state.json"]
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert snapshot.moments == {}


def test_what_is_computed_is_named_by_its_keys_written_or_left_at_their_defaults() -> None:
    plain, names = tiny.experiment(), set()
    parts = plain.model_dump(mode="json")
    assert parts["server"]["optimizer"] == {"name": "sgd", "lr": 1.0, "momentum": 0.0}
    for changes in (
        {},
        {"server": {"optimizer": {"lr": 0.5}}},
        {"server": {"optimizer": {"name": "adam"}}},
        {"participation": {"sampling": "poisson"}},
    ):
        names.add(fingerprint(tiny.experiment(**changes), "content", 2))
    assert len(names) == 4
    explicit = {"server": {"optimizer": {"lr": 1}, "noise": None}, "participation": {"sampling": "fixed"}}
    assert fingerprint(tiny.experiment(**explicit), "content", 2) == fingerprint(plain, "content", 2)


def test_the_optimizer_is_set_swept_and_shown_like_any_key() -> None:
    content = override(tiny.experiment().model_dump(mode="json"), {"server.optimizer": "yogi"})
    content = override(content, {"server.optimizer.lr": 0.03})
    assert content["server"]["optimizer"] == {"name": "yogi", "lr": 0.03}
    assert tiny.experiment(server=content["server"]).server.optimizer == ServerYogi(lr=0.03)
    for key in ("beta1 = 0.9", "beta2 = 0.99", "tau = 0.001", "momentum = 0.0", "sampling = fixed"):
        assert key in listing()


def test_what_is_computed_as_before_has_the_name_of_before() -> None:
    """Keys that have been added since are in no name while they are at the values with which nothing changes. A change
    of either name refuses every earlier run."""
    lora = SCRATCH | {"adapter": {"lora": {}}}
    names = [fingerprint(tiny.configured(**changes), "content", 2) for changes in ({}, {"model": lora})]
    assert names == ["25fb82bf5b3da468", "aa913f6a9d1635c0"]
    other = SCRATCH | {"adapter": {"lora": {"lr_ratio": 8}}}
    assert fingerprint(tiny.configured(model=other), "content", 2) not in names


@pytest.mark.parametrize(
    ("changes", "engine", "marked"),
    [
        ({"training": tiny.TRAINING | {"stack": 2}}, "native", True),
        ({"training": tiny.TRAINING | {"stack": 2}}, "cells", False),
        ({"training": tiny.TRAINING | {"stack": 1}}, "native", False),
        ({"model": SCRATCH | {"precision": "bfloat16"}}, "native", True),
        ({"model": SCRATCH | {"precision": "bfloat16"}}, "reference", False),
        ({"model": SCRATCH}, "native", True),
        ({"model": SCRATCH}, "reference", False),
    ],
)
def test_what_is_computed_in_another_way_has_another_name(
    changes: dict[str, Any], engine: str, marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = changes.get("training", tiny.TRAINING) | {"engine": engine}
    made, names = tiny.experiment(**(changes | {"training": training})), set()
    for version in (1, 2):
        for way in ("stacked", "filled", "blocks"):
            monkeypatch.setitem(VERSIONS, way, version)
        names.add(fingerprint(made, "content", 2))
    assert len(names) == 1 + marked
