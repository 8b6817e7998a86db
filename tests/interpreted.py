"""The kernels beside the loops they stand for, in Triton's interpreter, or on a GPU.

tests/fedtext/models/test_kernels.py and tests/fedtext/runtime/test_cuda.py run this in a process of its own: Triton
asks for the interpreter once, on import.
"""

import os
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtext.client.worker import Worker
from fedtext.layout import Layout
from fedtext.methods import KTEPS
from fedtext.models.packing import BLOCK, Packing
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.models.steps import GRUSteps, LSTMSteps
from fedtext.parameters import initial
from fedtext.testing.epochs import Client, difference, epoch
from fedtext.training.config import SGD
from tests import tiny
from tests.loops import nonempty

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") else "cuda")
LAYERS = pytest.mark.parametrize(("layer", "gates"), [(GRUSteps, 3), (LSTMSteps, 4)], ids=["gru", "lstm"])
SHAPES = [  # clients, texts, the longest of them, directions, width
    (1, 1, 1, 1, 1),
    (1, 3, 6, 2, 5),
    (1, BLOCK, 3, 1, 16),
    (1, 2 * BLOCK + 3, 4, 1, 5),
    (2, BLOCK + 1, 3, 2, 20),
]


def computed(layer: Any, gates: int, shape: tuple[int, ...], dtype: torch.dtype, kernels: bool) -> list[Tensor]:
    """What ``layer`` returns and saves, and the gradients of everything it is given."""
    clients, texts, longest, directions, width = shape
    lengths_CB = np.random.default_rng(0).integers(1, longest + 1, (clients, texts))
    packing, generator = (
        Packing.of(lengths_CB, directions, DEVICE, "triton" if kernels else "cells"),
        torch.Generator().manual_seed(0),
    )
    rows, lanes = int(packing.deep_source.max()) + 1, packing.lanes
    shapes = [(rows, gates * width), (lanes, gates * width, width), (lanes, width)][: 3 if layer is GRUSteps else 2]
    drawn = [torch.randn(shape, dtype=torch.float64, generator=generator) / width**0.5 for shape in shapes]
    given = [tensor.to(DEVICE, dtype).requires_grad_() for tensor in drawn]
    outputs = layer.apply(*given, packing.deep_source, packing)
    grad_PH = (
        torch.randn(outputs[0].T.shape, dtype=torch.float64, generator=generator).to(DEVICE, dtype).T
    )  # not contiguous
    return [*outputs, *torch.autograd.grad(outputs[0], given, grad_PH)]


@LAYERS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernels_equal_the_loops(layer: Any, gates: int, shape: tuple[int, ...]) -> None:
    for got, expected in nonempty(
        zip(*(computed(layer, gates, shape, torch.float64, k) for k in (True, False)), strict=True)
    ):
        assert (got - expected).abs().max() <= 1e-9 * expected.abs().max()


@LAYERS
def test_kernels_in_float32_differ_by_rounding_only(layer: Any, gates: int) -> None:
    shape = SHAPES[1]
    _, _, steps, _, width = shape
    limit = torch.finfo(torch.float32).eps * steps * (gates * width + 8)  # each step sums so many, and rounds them
    truth = computed(layer, gates, shape, torch.float64, False)
    for got, expected in nonempty(zip(computed(layer, gates, shape, torch.float32, True), truth, strict=True)):
        assert (got - expected).abs().max() <= limit * expected.abs().max()


@LAYERS
def test_a_lane_that_diverges_leaves_the_others_alone(layer: Any, gates: int) -> None:
    packing = Packing.of(np.array([[3, 1], [2, 2]]), 1, DEVICE, "triton")
    inputs = torch.randn(int(packing.deep_source.max()) + 1, gates * 2, device=DEVICE)
    weights = [torch.randn(2, gates * 2, 2, device=DEVICE), torch.zeros(2, 2, device=DEVICE)][
        : 2 if layer is GRUSteps else 1
    ]
    expected = layer.apply(inputs, *weights, packing.deep_source, packing)[0]
    weights[0][1] = float("nan")
    got = layer.apply(inputs, *weights, packing.deep_source, packing)[0]
    sound, _ = packing.places.rows_LS
    assert torch.equal(got[sound], expected[sound])
    assert not got.isfinite().all()


@pytest.mark.skipif(DEVICE.type != "cpu", reason="on the CPU; tests/fedtext/runtime/test_cuda.py has both on a GPU")
@pytest.mark.parametrize("model", ["bigru", "bilstm"])
def test_an_epoch_equals_the_references(model: str) -> None:
    """Alone, and in a stack of clients."""
    config = RecurrentClassifier.model_validate(
        {"name": model, "embedding": {"dim": 4}, "hidden": 5, "head": {"hidden": 3}}
    )
    clients = [Client(tiny.token_set(np.random.default_rng(n), texts, 1, 30, 5), 30) for n, texts in enumerate((10, 9))]
    expected = epoch("reference", KTEPS(), config, clients[:1], SGD(lr=0.05))[0]
    for number in (1, 2):
        got = epoch("triton", KTEPS(), config, clients[:number], SGD(lr=0.05))[0]
        assert got.terms == pytest.approx(expected.terms, rel=1e-9)
        assert difference(got, expected) < 1e-9


def test_a_worker_trains_and_reads_by_them() -> None:
    corpus, turns = tiny.corpus(clients=1, texts=6), []
    for engine in ("triton", "cells"):
        experiment = tiny.experiment(training={"engine": engine, "local_epochs": 1, "batch_size": 4})
        shared, private = initial(experiment, corpus)
        flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
        worker = Worker(experiment, corpus, corpus.clients, private, DEVICE.type)
        assert worker.evaluating.engine == worker.training.engine == engine
        (reply,) = worker.train(flat, 1, [0])
        assert not reply.error
        turns.append((reply.metrics["loss"], worker.evaluate(flat, 1, [0], False)[0].metrics))
    (got, read), (expected, expected_read) = turns
    assert got == pytest.approx(expected, rel=1e-5)
    assert read == expected_read
