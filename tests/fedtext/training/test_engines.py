"""Every engine computes what the reference does: in float64, over a local epoch, for every method and model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from fedtext.methods import APFL, ASPMTL, KTEPS, METHODS, PFLDA, Ditto, FedAvg, FedFusion, FedMMD, FedProx
from fedtext.methods.base import Method, Model
from fedtext.models import steps
from fedtext.models.packing import Packing
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.runtime.compiled import compile_problem
from fedtext.testing.epochs import Client, Trained, epoch, stackable
from fedtext.training.batches import Assembler, Texts
from fedtext.training.config import SGD, Adam
from tests import tiny
from tests.loops import nonempty

CPU = torch.device("cpu")
FAST = ["cells", pytest.param("native", marks=pytest.mark.skipif(bool(compile_problem()), reason=compile_problem()))]
SIZES = (50, 44, 50, 20, 5)  # last batches differ, one client runs out early, and one never fills a batch
CLIENTS = [  # most rows go many steps without a gradient
    Client(tiny.token_set(np.random.default_rng(number), texts, 1, 300 + number, 12), 300 + number)
    for number, texts in enumerate(SIZES)
]


def run(
    engine: str,
    method: Method,
    model: dict[str, Any],
    optimizer: str = "sgd",
    clients: Sequence[int] = (0,),
    dtype: torch.dtype = torch.float64,
    scales: Sequence[float] = (),
) -> list[Trained]:
    config = RecurrentClassifier.model_validate({"embedding": {"dim": 6}, "hidden": 5, "head": {"hidden": 4}} | model)
    made = {"sgd": SGD, "adam": Adam}[optimizer](lr=0.05)
    return epoch(engine, method, config, [CLIENTS[n] for n in clients], made, dtype, scales, 12)


def assert_equal(got: Trained, expected: Trained, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    assert got.terms == pytest.approx(expected.terms, rel=rtol)
    for name, tensor in nonempty(expected.after.items()):
        assert torch.allclose(got.after[name], tensor, rtol=rtol, atol=atol), name


MODELS = [
    {"name": "bigru"},
    {"name": "gru"},
    {"name": "bigru", "layers": 2},
    {"name": "bigru", "pooling": "last"},
    {"name": "gru", "pooling": "last", "layers": 2},
    {"name": "bigru", "pooling": "mean"},
    {"name": "bilstm"},
    {"name": "lstm", "layers": 2},
    {"name": "bilstm", "pooling": "last", "layers": 2},
    {"name": "lstm", "pooling": "last", "head": {"hidden": [7, 6, 4]}, "output": "sigmoid"},
]


EVERYWHERE = [FedAvg(), FedProx(), KTEPS()]
WITH_TWO = [  # methods with several encoders or tables, on two models only; their own terms count in full
    KTEPS(architecture="encoder", lambda2=1),
    KTEPS(architecture="everything"),
    FedMMD.model_validate({"lambda": 1}),
    FedFusion(operator="multi"),
    FedFusion(operator="single"),
    FedFusion(operator="conv"),
    PFLDA(),
    Ditto.model_validate({"lambda": 1}),
    APFL(alpha=0.4),
    ASPMTL(adv=1, diff=1),
]
CASES = [(method, model) for model in MODELS for method in EVERYWHERE]
CASES += [(method, model) for model in (MODELS[0], MODELS[4]) for method in WITH_TWO]


def named(value: Any) -> str:
    options = value if isinstance(value, dict) else value.model_dump(exclude_defaults=True) | {"name": value.name}
    return "-".join(map(str, options.values()))


def test_every_kind_of_loss_is_among_the_cases() -> None:
    assert {method.loss for method in METHODS.values()} == {type(method).loss for method, _ in CASES}


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize(("method", "model"), CASES, ids=named)
def test_every_engine_equals_the_reference(method: Method, model: dict[str, Any], engine: str) -> None:
    assert_equal(run(engine, method, model)[0], run("reference", method, model)[0])


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("changes", [{"pooling": "last"}, {"name": "bilstm"}], ids=["gru", "lstm"])
def test_with_adam_as_well_and_a_stack_like_the_reference(changes: dict[str, Any], engine: str) -> None:
    expected = run("reference", KTEPS(), changes, "adam")[0]
    assert_equal(run(engine, KTEPS(), changes, "adam")[0], expected)
    assert_equal(run(engine, KTEPS(), changes, "adam", [0, 1, 2])[0], expected)


def test_the_reference_trains_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU torch's layers move their weights into a buffer of their own, away from the client's."""

    def move(rnn: torch.nn.GRU) -> None:
        for weight in rnn._flat_weights:
            weight.data = weight.data.clone()

    expected = run("reference", KTEPS(), {})[0]
    monkeypatch.setattr(torch.nn.GRU, "flatten_parameters", move)
    assert_equal(run("reference", KTEPS(), {})[0], expected)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize(("method", "model"), [case for case in CASES if stackable(case[0])], ids=named)
def test_a_stack_equals_its_clients_one_by_one(method: Method, model: dict[str, Any], engine: str) -> None:
    optimizer = "adam" if model == MODELS[0] else "sgd"
    scales = [1 + 0.5 * client for client in range(len(SIZES))]
    stacked = run(engine, method, model, optimizer, range(len(SIZES)), scales=scales)
    for client, got in nonempty(enumerate(stacked)):
        assert_equal(got, run(engine, method, model, optimizer, [client], scales=[scales[client]])[0])


@pytest.mark.parametrize("fast", FAST)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_engines_in_float32_differ_by_rounding_only(optimizer: str, fast: str) -> None:
    truth = run("reference", KTEPS(), {}, optimizer)[0].after
    for engine, clients in (("reference", [0]), (fast, [0]), (fast, [0, 1, 2])):
        got = run(engine, KTEPS(), {}, optimizer, clients, torch.float32)[0].after
        for name, tensor in nonempty(got.items()):
            limit = 2e-4 if optimizer == "adam" else 2e-5
            assert torch.allclose(tensor.double(), truth[name], atol=limit), (engine, clients, name)


@pytest.mark.parametrize("engine", FAST)
def test_a_client_that_diverges_leaves_its_stack_alone(engine: str) -> None:
    """Lanes share every product, but nothing of one reaches another."""
    expected = run(engine, KTEPS(), {}, clients=range(3), scales=(1, 1, 1))
    got = run(engine, KTEPS(), {}, clients=range(3), scales=(1, float("nan"), 1))
    assert not np.isfinite(sum(got[1].terms.values()))
    for client in (0, 2):
        for name, tensor in nonempty(expected[client].after.items()):
            assert torch.equal(got[client].after[name], tensor), name


def test_a_trained_model_reads_alike_through_both_engines() -> None:
    trained, texts = run("cells", KTEPS(), {"dropout": 0.5})[0], Texts(CLIENTS[0].tokens, CLIENTS[0].rows)
    trained.network.eval()
    model = Model(trained.network, trained.after)
    cells, reference = (
        KTEPS().probabilities(model, Assembler(directions, False, CPU).single(texts, np.arange(50))[0], "both")
        for directions in (2, None)
    )
    assert torch.allclose(cells, reference, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("kind", "gates"), [("GRUSteps", 3), ("LSTMSteps", 4)])
@pytest.mark.parametrize("lengths", [[[2, 4, 1, 4]], [[1, 1]], [[3]], [[1]], [[2, 4], [3, 1], [1, 1]]])
def test_the_gradient_passes_torchs_own_check(kind: str, gates: int, lengths: list[list[int]]) -> None:
    layer = getattr(steps, kind)
    packing = Packing.of(np.array(lengths), 2, CPU)
    source = packing.deep_source
    generator = torch.Generator().manual_seed(0)
    shapes = [(int(source.max()) + 1, 3 * gates), (packing.lanes, 3 * gates, 3), (packing.lanes, 3)]
    shapes = shapes if kind == "GRUSteps" else shapes[:2]
    inputs = [torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True) for shape in shapes]
    before = [tensor.detach().clone() for tensor in inputs]
    assert torch.autograd.gradcheck(
        lambda *tensors: layer.apply(*tensors, source, packing)[0], inputs, check_undefined_grad=False
    )
    assert all(nonempty(torch.equal(tensor, copy) for tensor, copy in zip(inputs, before, strict=True))), (
        "inputs stay as they were"
    )


def test_a_packing_covers_every_token_once() -> None:
    lengths = np.array([[2, 4, 1, 4], [3, 3, 3, 3], [1, 1, 1, 1]])
    packing = Packing.of(lengths, 2, CPU)
    assert packing.sizes_T == [4, 4, 4, 2]  # the widest client decides
    assert packing.runs == [(3, 4), (1, 2)]
    places = packing.places
    for client, lengths_B in nonempty(enumerate(lengths)):
        text_S = places.text_CS[client]
        real = text_S < 4
        pairs = list(zip(text_S[real], places.step_S[real], strict=True))
        assert sorted(pairs) == [(text, step) for text, length in enumerate(lengths_B) for step in range(length)]
        backward = places.place_LS[2 * client + 1]
        assert (text_S[backward] == text_S).all(), "a text is read in its own slot"
        assert (backward[backward] == np.arange(len(backward))).all()
    assert sorted(packing.by_lane.tolist()) == list(range(6 * 14))


@pytest.mark.parametrize("engine", FAST)
def test_dropout_strikes_in_training_only_and_follows_the_seed(engine: str) -> None:
    for clients in ([0], [0, 1]):
        whole, thinned, again, nearly = (
            run(engine, FedAvg(), {"dropout": share}, clients=clients)[0].terms["ce"] for share in (0, 0.5, 0.5, 1e-12)
        )
        assert whole != thinned
        assert thinned == again
        assert nearly == pytest.approx(whole, rel=1e-9), "every word by itself, and none struck out"


def test_auto_takes_cells_where_nothing_is_known_of_the_machine() -> None:
    assert tiny.configured().engine == "cells"
    assert tiny.configured(training={"engine": "reference"}).engine == "reference"
