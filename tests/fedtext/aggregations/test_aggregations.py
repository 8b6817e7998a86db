"""Aggregations against definitions written out, their limiting cases, and what one attacker can do to them."""

import itertools
import math
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtext.aggregations import AGGREGATIONS, IndividualAggregation
from fedtext.aggregations.geometric_median import GeometricMedian
from fedtext.aggregations.krum import Krum
from fedtext.aggregations.median import Median
from fedtext.aggregations.norm_bounded import NormBounded
from fedtext.aggregations.trimmed_mean import TrimmedMean
from fedtext.aggregations.update_set import UpdateSet
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update
from fedtext.methods import METHODS, Method, layouts
from fedtext.metrics import find
from fedtext.server.weighted_sum import WeightedSum
from tests import tiny
from tests.loops import nonempty
from tests.sampled import slow_but

STATE = {TABLE: np.arange(8, dtype=np.float32).reshape(4, 2), "w": np.array([10, 20], np.float32)}
SIZE = sum(tensor.size for tensor in STATE.values())
CORPUS = tiny.corpus(clients=5)
ONCE = tiny.TRAINING | {"rounds": 1}
# Each with keys that five clients are enough for, and that change what the mean would do.
# lora needs adapters: tests/fedtext/models/test_adapters.py
CONFIGURED: dict[str, Any] = {name: name for name in AGGREGATIONS if name != "lora"} | {
    "trimmed_mean": {"trimmed_mean": {"share": 0.2}},
    "norm_bounded": {"norm_bounded": {"norm": 0.05}},
    "centered_clipping": {"centered_clipping": {"radius": 0.05, "iterations": 2}},
    "multi-krum": {"krum": {"attackers": 1, "keep": 3}},
}
EACH = [name for name in CONFIGURED if name not in ("mean", "norm_bounded")]


def update(client: int, flat: Any, samples: int = 1) -> Update:
    """All of STATE's coordinates, the table first."""
    flat = np.asarray(flat, np.float32)
    return Update(client, samples, {TABLE: flat[:8].reshape(4, 2), "w": flat[8:]})


def vector(update: Update) -> np.ndarray:
    return np.concatenate([update.tensors[TABLE].ravel(), update.tensors["w"]]).astype(np.float64)


def cohort(clients: int, seed: int = 0, scale: float = 1.0) -> list[Update]:
    rng = np.random.default_rng(seed)
    return [update(k, scale * rng.standard_normal(SIZE), samples=k + 1) for k in range(clients)]


def change(aggregation: IndividualAggregation, updates: Sequence[Update], **how: Any) -> np.ndarray:
    state, _ = aggregation.aggregate(STATE, iter(updates), **how)
    assert {name: (t.shape, t.dtype) for name, t in state.items()} == {n: (t.shape, t.dtype) for n, t in STATE.items()}
    return np.concatenate([(state[name].astype(np.float64) - STATE[name]).ravel() for name in STATE])


def test_three_clients_by_hand() -> None:
    values = [np.zeros(SIZE), np.full(SIZE, 1), np.full(SIZE, 5)]
    three = [update(k, value, samples=1) for k, value in enumerate(values)]
    assert np.allclose(change(Median(), three), 1)
    assert np.allclose(change(Median(), three[1:]), 3), "of two the mean of both"
    assert np.allclose(change(TrimmedMean(share=0.4), three), 1)
    assert np.allclose(change(TrimmedMean(share=0.3), three), 2), "0.3 of three is none"
    assert np.allclose(change(Krum(attackers=0), three), 0), "0 and 1 are equally near: the first counts"
    assert np.allclose(change(Krum(attackers=0, keep=2), three), 0.5)
    assert np.allclose(change(GeometricMedian(iterations=60), three), 1, atol=1e-5), "on a line the median"
    layout = Layout({name: tensor.shape for name, tensor in STATE.items()})
    total = WeightedSum(layout, 3, uniform=True, holders_only=False, aggregation=NormBounded(norm=2 * math.sqrt(SIZE)))
    for each in three:
        total.add(each)
    mean = total.mean()
    assert mean is not None
    assert np.allclose(layout.views(mean)["w"], (0 + 1 + 2) / 3, atol=1e-9)
    assert total.metrics() == {"norm_scaled": 1 / 3}


@given(st.integers(1, 8), st.sampled_from([0.0, 0.1, 0.25, 0.34, 0.49]), st.integers(0, 99))
def test_median_and_trimmed_mean_equal_sorting_by_hand(clients: int, share: float, seed: int) -> None:
    updates = cohort(clients, seed)
    columns = [sorted(float(vector(each)[place]) for each in updates) for place in range(SIZE)]
    middle = [(column[(clients - 1) // 2] + column[clients // 2]) / 2 for column in columns]
    assert np.allclose(change(Median(), updates), middle, atol=4e-6)
    cut = int(share * clients)
    kept = [sum(column[cut : clients - cut]) / (clients - 2 * cut) for column in columns]
    assert np.allclose(change(TrimmedMean(share=share), updates), kept, atol=4e-6)


def test_the_number_that_is_trimmed_is_not_lost_to_rounding() -> None:
    for hundredths, updates in nonempty(itertools.product(range(50), (7, 10, 50, 100, 1000))):
        assert TrimmedMean(share=hundredths / 100).trimmed(updates) == hundredths * updates // 100
    assert TrimmedMean(share=0).problem(3) == TrimmedMean(share=0.4).problem(3) == ""


@given(st.integers(5, 9), st.integers(0, 3), st.integers(1, 5), st.integers(0, 99))
def test_krum_equals_its_definition(clients: int, attackers: int, keep: int, seed: int) -> None:
    aggregation, updates = Krum(attackers=attackers, keep=keep), cohort(clients, seed)
    if clients < 2 * attackers + 3:
        with pytest.raises(UserError, match=rf"server.aggregation.attackers: krum against {attackers} needs"):
            aggregation.aggregate(STATE, updates)
        return
    points = [vector(each) for each in updates]
    squares = [[math.dist(one, other) ** 2 for other in points] for one in points]
    assert np.allclose(UpdateSet(STATE, updates).pairs(), squares)
    scores = [
        sum(sorted(squares[i][j] for j in range(clients) if j != i)[: clients - attackers - 2]) for i in range(clients)
    ]
    best = sorted(range(clients), key=scores.__getitem__)[:keep]
    assert np.allclose(change(aggregation, updates), np.mean([points[i] for i in best], 0), atol=4e-6)
    assert aggregation.aggregate(STATE, updates)[1] == {"krum_client": best[0], "krum_kept": keep}


@settings(max_examples=25)
@given(st.integers(3, 7), st.booleans(), st.integers(0, 99))
def test_no_point_around_the_geometric_median_is_nearer_to_the_updates(clients: int, equal: bool, seed: int) -> None:
    """By the weighted sum of distances; and where no update is near, the pull of all of them is zero."""
    updates, rng = cohort(clients, seed), np.random.default_rng(seed)
    weights = [1.0 if equal else each.samples for each in updates]
    point = change(GeometricMedian(iterations=500), updates, **({"weight": lambda _: 1.0} if equal else {}))

    def objective(z: np.ndarray) -> float:
        return sum(w * math.dist(z, vector(each)) for w, each in zip(weights, updates, strict=True))

    for _ in range(20):
        assert objective(point) <= objective(point + 1e-2 * rng.standard_normal(SIZE)) + 1e-5
    distances = [math.dist(point, vector(each)) for each in updates]
    if min(distances) > 0.1:
        pull = sum(w * (point - vector(u)) / d for w, u, d in zip(weights, updates, distances, strict=True))
        assert np.abs(pull).max() < 1e-3 * sum(weights)


def on_plane(*points: tuple[float, float]) -> list[Update]:
    return [update(k, [*point, *([0] * (SIZE - 2))]) for k, point in enumerate(points)]


def test_the_geometric_median_of_known_points() -> None:
    """Of the corners of a square its centre; a point with more than half of the weight; the Fermat point."""
    many, square = GeometricMedian(iterations=500), [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)]
    assert np.allclose(change(many, on_plane(*square)), 0, atol=1e-6)
    heavy = on_plane((3, 1), *square)
    assert np.allclose(change(many, heavy, weight=lambda u: 1 + 8 * (u.client == 0))[:2], [3, 1], atol=1e-4)
    fermat = change(many, on_plane((0, 2), (1, 0), (-1, 0)))[:2]
    assert np.allclose(fermat, [0, 1 / math.sqrt(3)], atol=1e-5)
    smooth = change(GeometricMedian(nu=1e6), heavy)[:2]
    assert np.allclose(smooth, [3 / 5, 1 / 5], atol=1e-5), "where nu exceeds all distances, the mean"
    metrics = GeometricMedian(nu=1e6).aggregate(STATE, heavy, lambda u: 1 + 8 * (u.client == 0))[1]
    assert metrics == {"geometric_clients": pytest.approx(13**2 / (9**2 + 4))}


@given(st.integers(3, 6), st.integers(0, 99))
def test_limiting_cases_are_the_unweighted_mean(clients: int, seed: int) -> None:
    updates = cohort(clients, seed)
    mean = np.mean([vector(each) for each in updates], 0)
    for aggregation in (TrimmedMean(share=0), Krum(attackers=0, keep=clients)):
        assert np.allclose(change(aggregation, updates), mean, atol=4e-6)


@pytest.mark.parametrize("name", [name for name in EACH if name != "attention"])
@given(st.permutations(range(5)), st.integers(0, 9))
def test_the_order_in_which_updates_come_changes_no_bit(name: str, order: list[int], seed: int) -> None:
    aggregation, updates = configured(name), cohort(5, seed)
    first, metrics = aggregation.aggregate(STATE, updates)
    again, same = aggregation.aggregate(STATE, [updates[place] for place in order])
    assert [first[name].tobytes() for name in STATE] == [again[name].tobytes() for name in STATE]
    assert metrics == same


def configured(name: str) -> IndividualAggregation:
    aggregation = tiny.experiment(server={"aggregation": CONFIGURED[name]}).aggregation
    assert isinstance(aggregation, IndividualAggregation)
    return aggregation


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "geometric_median", "krum", "multi-krum"])
def test_one_attacker_moves_the_mean_and_not_these(name: str) -> None:
    """Of five clients. The others' updates are about 3 long, and the attacker's 3000."""
    for seed in range(20):
        updates = cohort(5, seed)
        honest = np.mean([vector(each) for each in updates[1:]], 0)
        updates[0] = update(0, 1e3 * vector(updates[0]))
        moved = np.linalg.norm(change(configured(name), updates, weight=lambda _: 1.0) - honest)
        assert moved < 5
        assert np.linalg.norm(np.mean([vector(each) for each in updates], 0) - honest) > 200


@pytest.mark.parametrize("name", EACH)
def test_a_tensor_that_no_one_sends_stays_and_absent_rows_are_rows_of_zeros(name: str) -> None:
    """Rows come in any order, and some clients hold none."""
    rng, whole, own = np.random.default_rng(0), [], []
    for k in range(5):
        rows = rng.permutation(4)[:k].astype(np.int32)
        part, table = rng.standard_normal((k, 2)).astype(np.float32), np.zeros((4, 2), np.float32)
        table[rows] = part
        whole.append(Update(k, 1, {TABLE: table}))
        own.append(Update(k, 1, {TABLE: part}, rows))
    left, right = (configured(name).aggregate(STATE, updates)[0] for updates in (whole, own))
    assert left[TABLE].tobytes() == right[TABLE].tobytes()
    assert np.array_equal(left["w"], STATE["w"])


def test_long_tensors_are_read_in_pieces_without_a_seam() -> None:
    """Among them rows that are longer than a piece, in any order; and tensors of one number and of none."""
    rng = np.random.default_rng(0)
    state = {TABLE: np.zeros((3, 300_000), np.float32), "w": np.zeros(600_001, np.float32)}
    state |= {"scalar": np.zeros((), np.float32), "none": np.zeros((2, 0), np.float32)}
    first, second = ({n: np.asarray(rng.random(t.shape), np.float32) for n, t in state.items()} for _ in range(2))
    sent = Update(1, 1, second | {TABLE: second[TABLE][:2]}, np.array([2, 0], np.int32))
    second[TABLE] = np.stack([second[TABLE][1], np.zeros(300_000, np.float32), second[TABLE][0]])
    got, _ = Median().aggregate(state, [sent, Update(0, 1, first)])
    assert all(np.allclose(got[name], (first[name] + second[name]) / 2, atol=1e-6) for name in state)


def test_comparing_updates_takes_the_memory_that_is_stated() -> None:
    state = {TABLE: np.zeros((50_000, 20), np.float32), "w": np.zeros(500_000, np.float32)}
    updates = [Update(k, 1, {name: np.full_like(t, k) for name, t in state.items()}) for k in range(8)]
    size = sum(tensor.nbytes for tensor in state.values())
    for aggregation, points in ((Median(), 1), (TrimmedMean(), 1), (Krum(), 1), (GeometricMedian(), 2)):
        tracemalloc.start()
        aggregation.aggregate(state, updates)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (2 * points + 1) * size + 5 * 2**21, "points in float64, the result in float32, pieces of 2 MB"


def run(method: Any, name: str, **changes: Any) -> tiny.Finished:
    server = {"aggregation": CONFIGURED[name]} | changes.pop("server", {})
    return tiny.Finished(method, CORPUS, server=server, **changes)


@pytest.mark.parametrize("options", [{}, {"step": 0.5, "norm": "spectral"}, {"attention": "uniform", "step": 1}])
def test_fedatt_is_fedavg_with_attention_to_the_bit(options: dict[str, Any]) -> None:
    fedatt = tiny.Finished({"name": "fedatt", **options}, CORPUS)
    attention = tiny.Finished("fedavg", CORPUS, server={"aggregation": {"attention": options}})
    assert fedatt.flat.tobytes() == attention.flat.tobytes()
    assert [record.clients for record in fedatt.rows] == [record.clients for record in attention.rows]


def test_a_bound_that_no_update_reaches_is_the_mean_to_the_bit() -> None:
    wide = tiny.Finished("fedavg", CORPUS, server={"aggregation": {"norm_bounded": {"norm": 1e9}}})
    assert wide.flat.tobytes() == run("fedavg", "mean").flat.tobytes() == tiny.Finished("fedavg", CORPUS).flat.tobytes()
    assert [record.metrics["norm_scaled"] for record in wide.rows] == [0, 0]
    near = run("fedavg", "norm_bounded", training=ONCE)
    assert near.rows[0].metrics["norm_scaled"] == 1
    assert np.linalg.norm(near.flat - near.before) <= 0.05 + 1e-6


@pytest.mark.parametrize("name", CONFIGURED)
def test_own_rows_equal_all_rows_and_a_resumed_run_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    whole = run("fedavg", name, server={"optimizer": {"momentum": 0.5}})
    everything = run("fedavg", name, server={"optimizer": {"momentum": 0.5}}, wire={"rows": "all"})
    assert whole.flat.tobytes() == everything.flat.tobytes()
    next(tiny.federation(whole.experiment, CORPUS, folder=tmp_path).run())
    again = tiny.federation(whole.experiment, CORPUS, folder=tmp_path)
    (last,) = again.run()
    assert again.flat.tobytes() == whole.flat.tobytes()
    measured = ("seconds", "cpu")
    kept = {n: v for n, v in whole.rows[-1].metrics.items() if not any(word in n for word in measured)}
    assert kept.items() <= last.metrics.items()
    assert {metric for metric in last.metrics if find(metric) is None} == set()


@pytest.mark.parametrize("name", ["mean", "norm_bounded", "geometric_median", "centered_clipping"])
def test_weights_are_those_of_the_server(name: str) -> None:
    equal, counted = (run("fedavg", name, training=ONCE, server={"weights": w}) for w in ("uniform", "samples"))
    assert not np.array_equal(equal.flat, counted.flat)


TWO_STAGES = {"name": "lg_fedavg", "pretrain": 1}


SHARING = [
    name
    for name, method in METHODS.items()
    if method.shares
    and not method.pooled
    and method.aggregation is Method.aggregation
    and not layouts.extras(method(), Layout({TABLE: (2, 1)}), lambda name: False)
]


@pytest.mark.parametrize("method", slow_but([*SHARING, TWO_STAGES], "fedavg", "kteps", "fedmmd", TWO_STAGES), ids=str)
def test_every_method_runs_with_the_median(method: Any) -> None:
    training = tiny.TRAINING if method == TWO_STAGES else ONCE
    changed, mean = (run(method, name, training=training) for name in ("median", "mean"))
    assert np.isfinite(changed.flat).all()
    assert not np.array_equal(changed.flat, mean.flat)
