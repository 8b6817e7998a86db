"""FedAtt by hand, its limiting cases, what it holds in memory; and FedSGD as one step of gradient descent."""

import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from fedtext.aggregations.attention import Attention, Layer
from fedtext.aggregations.norms import frobenius, spectral
from fedtext.config.experiment import Experiment
from fedtext.layout import TABLE
from fedtext.messages import Update
from tests import tiny
from tests.loops import nonempty

Tensors = dict[str, NDArray[np.float32]]
STATE: Tensors = {
    TABLE: np.array([[1, 1], [2, 2], [3, 3]], np.float32),
    "head.bias": np.array([10, 20], np.float32),
}
NORMS = ["frobenius", "spectral"]


def two() -> list[Update]:
    """The first sends rows 2 and 0 of the table, [[3, 0], [0, 4]] in that order, the second all of them."""
    first = {TABLE: np.array([[3, 0], [0, 4]], np.float32), "head.bias": np.array([0.3, 0.4], np.float32)}
    second = {TABLE: np.array([[0, 3], [0, 0], [0, 0]], np.float32), "head.bias": np.array([0, 0], np.float32)}
    return [Update(0, 1, first, np.array([2, 0], np.int32)), Update(1, 9, second)]


def cohort(rng: np.random.Generator, clients: int, scale: float = 1.0) -> list[Update]:
    return [
        Update(k, k + 1, {n: (scale * rng.standard_normal(t.shape)).astype(np.float32) for n, t in STATE.items()})
        for k in range(clients)
    ]


def mean(updates: list[Update], step: float = 1.0) -> Tensors:
    return {name: t + step * np.mean([u.tensors[name] for u in updates], 0) for name, t in STATE.items()}


def close(got: Any, expected: Any) -> bool:
    return all(np.allclose(got[name], expected[name], rtol=1e-5, atol=1e-5) for name in STATE)


@pytest.mark.parametrize(
    ("norm", "distance"),
    [("frobenius", 5.0), ("spectral", 4.0)],  # of [[3, 0], [0, 4]]: sqrt(9 + 16), and its larger singular value
)
def test_two_clients_by_hand(norm: Any, distance: float) -> None:
    state, figures = Attention(norm=norm, step=1.5).aggregate(STATE, two())
    # alpha of the first client: e^s_1 / (e^s_1 + e^s_2) = 1 / (1 + e^(s_2 - s_1)); of the second one s_2 is 3 and 0
    a, b = 1 / (1 + math.exp(3 - distance)), 1 / (1 + math.exp(0 - 0.5))
    assert np.allclose(state[TABLE], [[1, 1 + 1.5 * (4 * a + 3 * (1 - a))], [2, 2], [3 + 1.5 * 3 * a, 3]])
    assert np.allclose(state["head.bias"], [10 + 1.5 * 0.3 * b, 20 + 1.5 * 0.4 * b])
    assert figures == {
        f"attention_clients/{TABLE}": pytest.approx(1 / (a**2 + (1 - a) ** 2)),
        "attention_clients/head.bias": pytest.approx(1 / (b**2 + (1 - b) ** 2)),
    }
    assert {tensor.dtype for tensor in state.values()} == {np.dtype(np.float32)}
    assert STATE[TABLE].tolist() == [[1, 1], [2, 2], [3, 3]], "what the server has is not written into"


@pytest.mark.parametrize(
    ("norm", "attention"), [("frobenius", "softmax"), ("spectral", "softmax"), ("frobenius", "uniform")]
)
@given(st.integers(1, 6), st.floats(1e-6, 1e6), st.sampled_from([0.5, 1.0, 1.2]), st.integers(0, 99))
def test_attention_equals_its_formula(
    norm: Any, attention: Any, clients: int, scale: float, step: float, seed: int
) -> None:
    """In float64, all at once, by numpy's own norms and with the maximum taken off."""
    updates = cohort(np.random.default_rng(seed), clients, scale)
    state, figures = Attention(norm=norm, attention=attention, step=step).aggregate(STATE, updates)
    for name, tensor in STATE.items():
        deltas = [update.tensors[name].astype(np.float64) for update in updates]
        order = 2 if norm == "spectral" or tensor.ndim == 1 else "fro"
        s_K = np.array([np.linalg.norm(delta, order) for delta in deltas])  # type: ignore[arg-type]
        e_K = np.exp(s_K - s_K.max()) if attention == "softmax" else np.ones(clients)
        alpha_K = e_K / e_K.sum()
        expected = tensor + step * sum(alpha * delta for alpha, delta in zip(alpha_K, deltas, strict=True))
        assert np.allclose(state[name], expected, rtol=1e-5, atol=1e-5 * scale)
        assert figures[f"attention_clients/{name}"] == pytest.approx(1 / (alpha_K**2).sum(), rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@given(st.integers(1, 6), st.floats(0.01, 300), st.integers(0, 99))
def test_equal_distances_and_a_step_of_one_are_the_unweighted_mean(
    norm: Any, clients: int, size: float, seed: int
) -> None:
    """Whatever n_k; turned matrices and vectors are equally long."""
    rng, updates = np.random.default_rng(seed), []
    for k in range(clients):
        angle = rng.uniform(0, 2 * np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        tensors = {name: (size * np.ones_like(tensor) @ turn).astype(np.float32) for name, tensor in STATE.items()}
        updates.append(Update(k, 1 + k * k, tensors))
    state, figures = Attention(norm=norm, step=1).aggregate(STATE, updates)
    for name, expected in nonempty(mean(updates).items()):
        assert np.allclose(state[name], expected, rtol=1e-3, atol=1e-3 * size)
        assert figures[f"attention_clients/{name}"] == pytest.approx(clients, rel=1e-3)


def test_the_control_is_the_unweighted_mean_times_its_step_and_reads_no_distance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    updates = cohort(np.random.default_rng(1), 4, scale=100)
    attended = Attention(step=1.2).aggregate(STATE, updates)[0]
    monkeypatch.delattr("fedtext.aggregations.attention.frobenius")
    state, figures = Attention(step=1.2, attention="uniform").aggregate(STATE, updates)
    assert close(state, mean(updates, 1.2))
    assert set(figures.values()) == {4.0}
    assert not close(attended, mean(updates, 1.2))


@given(st.permutations(range(5)), st.integers(0, 99))
def test_the_order_of_clients_matters_to_rounding_only_and_the_same_order_gives_the_same_bits(
    order: list[int], seed: int
) -> None:
    updates = cohort(np.random.default_rng(seed), 5)
    (first, figures), (again, same), (other, nearly) = (
        Attention().aggregate(STATE, iter(taken)) for taken in (updates, updates, [updates[k] for k in order])
    )
    assert all(first[name].tobytes() == again[name].tobytes() for name in STATE)
    assert figures == same == pytest.approx(nearly, rel=1e-9)
    assert close(first, other)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("ascending", [True, False])
def test_distances_far_beyond_what_exp_can_take_leave_one_client(norm: Any, ascending: bool) -> None:
    updates = [Update(k, 1, {n: np.full_like(t, 10.0 ** (k + 2)) for n, t in STATE.items()}) for k in range(4)]
    state, figures = Attention(norm=norm, step=1).aggregate(STATE, updates if ascending else updates[::-1])
    assert close(state, mean(updates[-1:]))
    assert set(figures.values()) == {1.0}


@given(st.integers(0, 40), st.integers(1, 12), st.integers(0, 999))
def test_rows_that_are_left_out_equal_rows_of_zeros(held: int, dim: int, seed: int) -> None:
    """To the bit, but for the largest singular value."""
    rng = np.random.default_rng(seed)
    table, rows = np.zeros((40, dim), np.float32), rng.permutation(40)[:held]
    part = (rng.standard_normal((held, dim)) * 10.0 ** rng.integers(-3, 3, (held, 1))).astype(np.float32)
    table[rows] = part
    assert frobenius(part) == frobenius(table)
    assert spectral(part) == pytest.approx(spectral(table), rel=1e-9)
    whole, own = Layer(table), Layer(table)
    for score in (0.5, 0.25):
        whole.add(score, table, None)
        own.add(score, part, rows.astype(np.int32))
    assert own.moved(table, 1.2).tobytes() == whole.moved(table, 1.2).tobytes()


@given(st.integers(1, 30), st.integers(1, 30), st.floats(1e-12, 1e12), st.integers(0, 99))
def test_norms_equal_numpys(rows: int, columns: int, scale: float, seed: int) -> None:
    delta = (scale * np.random.default_rng(seed).standard_normal((rows, columns))).astype(np.float32)
    exact = delta.astype(np.float64)
    assert frobenius(delta) == pytest.approx(np.linalg.norm(exact), rel=1e-9)
    assert spectral(delta) == pytest.approx(np.linalg.norm(exact, 2), rel=1e-6)


def test_a_row_that_is_longer_than_a_piece_has_its_whole_length() -> None:
    assert frobenius(np.ones((1, 40_000), np.float32)) == 200


def test_memory_is_that_of_the_sums_whatever_the_cohort() -> None:
    state = {f"layer{n}": np.zeros((500, 100), np.float32) for n in range(4)} | {TABLE: np.zeros((500, 100), "f4")}
    size, clients = sum(tensor.nbytes for tensor in state.values()), 40

    def arriving() -> Iterator[Update]:
        for client in range(clients):
            yield Update(client, 1, {name: np.full_like(tensor, client) for name, tensor in state.items()})

    tracemalloc.start()
    Attention().aggregate(state, arriving())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * size, "sums in float64 are two, the update at hand and the next one two more"


ONCE = tiny.TRAINING | {"rounds": 1}


def test_a_run_with_its_control_at_step_one_is_fedavg_with_equal_weights() -> None:
    corpus = tiny.corpus(clients=4)
    control = tiny.Finished({"name": "fedatt", "attention": "uniform", "step": 1}, corpus, training=ONCE)
    fedavg = tiny.Finished("fedavg", corpus, training=ONCE, server={"weights": "uniform"})
    assert np.allclose(control.flat, fedavg.flat, atol=1e-6)
    far = tiny.Finished({"name": "fedatt", "attention": "uniform", "step": 2}, corpus, training=ONCE)
    assert np.allclose(far.flat - far.before, 2 * (fedavg.flat - far.before), atol=1e-6)
    attended = tiny.Finished({"name": "fedatt", "step": 1}, corpus, training=ONCE)
    assert not np.array_equal(attended.flat, control.flat)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"participation": {"fraction": 0.5}},
        {"uplink": [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.01}}]},
        {"uplink": ["quantize"]},
        {"uplink": [{"project": {"d1": 1, "d2": 3}}]},
        {"server": {"optimizer": {"name": "adam"}}},
    ],
    ids=lambda changes: "-".join(changes) or "plain",
)
@pytest.mark.parametrize("norm", NORMS)
def test_a_run_has_each_layers_clients_in_its_rows(norm: str, changes: dict[str, Any]) -> None:
    made = tiny.Finished({"name": "fedatt", "norm": norm}, tiny.corpus(clients=4), **changes)
    assert np.isfinite(made.flat).all()
    most = 4 * changes.get("participation", {}).get("fraction", 1)
    for record in nonempty(made.rows):
        figures = {n: v for n, v in record.metrics.items() if n.startswith("attention_clients/")}
        assert set(figures) == {f"attention_clients/{name}" for name in made.layout.shapes}
        assert all(nonempty(1 <= value <= most + 1e-9 for value in figures.values()))
        assert {type(value) for value in figures.values()} == {float}


def test_a_server_that_is_optimized_goes_in_the_direction_of_the_attended_step() -> None:
    plain = tiny.Finished("fedatt", training=ONCE)
    half = tiny.Finished("fedatt", training=ONCE, server={"optimizer": {"lr": 0.5}})
    assert np.allclose(half.flat - half.before, 0.5 * (plain.flat - plain.before), atol=1e-6)


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (
            "fedatt",
            {"server": {"weights": "uniform"}},
            "server.weights: uniform is for means of updates, and the attention of method fedatt is not one",
        ),
        ("fedatt", {"server": {"absent_rows": "holders_only"}}, "server.absent_rows: holders_only is for means"),
        (
            "fedatt",
            {"server": {"noise": {"multiplier": 1.0}}},
            "the attention of method fedatt does not use one",
        ),
        ({"name": "fedatt", "step": 0}, {}, "greater than 0"),
        ("fedsgd", {"training": {"local_epochs": 2}}, "training.local_epochs: method fedsgd is one pass"),
        ("fedsgd", {"training": {"local_epochs": 1}, "participation": {"fraction": 0.5}}, "set fraction to 1"),
        ("fedsgd", {"training": {"local_epochs": 1}, "participation": {"dropout": 0.1}}, "and leave out dropout"),
    ],
)
def test_what_does_not_go_with_a_method_is_refused(method: Any, changes: dict[str, Any], message: str) -> None:
    content = tiny.experiment().model_dump(mode="json") | {"method": method} | changes
    with pytest.raises(ValueError, match=message):
        Experiment.model_validate(content)


def test_a_round_of_fedsgd_is_one_step_of_gradient_descent_on_all_texts() -> None:
    """The loss written out for a model that adds up the rows of a text's words: ReLU(X E + b) W + c."""
    training = {"rounds": 1, "local_epochs": 1, "batch_size": {"steps": 1}, "optimizer": {"lr": 0.5, "momentum": 0}}
    corpus = tiny.corpus(clients=3)
    model = {"name": "bag", "embedding": {"dim": 5}, "hidden": ()}
    made = tiny.Finished("fedsgd", corpus, training=training, model=model)
    before = {name: torch.tensor(t, requires_grad=True) for name, t in made.layout.views(made.before).items()}
    sets = []
    for client in corpus.clients:
        texts = client.train
        x_NV = torch.zeros(len(texts), len(corpus.vocabulary))
        x_NV[np.repeat(np.arange(len(texts)), np.diff(texts.offsets)), client.rows_R[texts.tokens_T]] = 1
        sets.append(x_NV[:, 1:])  # a bag has no <pad>
    features_NF = torch.relu(torch.cat(sets) @ before[TABLE] + before["encoder.bias"])
    logits_NC = features_NF @ before["head.0.weight"].T + before["head.0.bias"]
    labels_N = torch.from_numpy(np.concatenate([client.train.labels_N for client in corpus.clients]))
    cross_entropy(logits_NC, labels_N).backward()
    for name, tensor in nonempty(before.items()):
        assert tensor.grad is not None
        assert np.allclose(made.state[name], (tensor - 0.5 * tensor.grad).detach(), atol=1e-6), name
        assert not np.array_equal(made.state[name], tensor.detach()), name
