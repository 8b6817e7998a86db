"""Every engine computes what the reference does: in float64, over a local epoch, for every method and model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedtext.experiment import SGD, Adam
from fedtext.methods import METHODS
from fedtext.methods.base import Model
from fedtext.models.cells import GRULayer, LSTMLayer, Packing
from fedtext.models.config import RecurrentClassifier
from fedtext.models.recurrent import TABLE, Encoder, Parts
from fedtext.training.batches import Texts, shuffled
from fedtext.training.local import Outcome, Problem, train
from fedtext.training.optimizer import LocalOptimizer
from tests import tiny

ROWS, LONGEST = 300, 12  # most rows go many steps without a gradient


def epoch(
    engine: str, method: str, model: dict[str, Any], optimizer: str = "sgd", double: bool = True
) -> tuple[Outcome, dict[str, Tensor], Tensor]:
    """One local epoch of 50 texts in batches of 8: losses, final parameters, and the probabilities they give."""
    config = RecurrentClassifier.model_validate({"embedding": {"dim": 6}, "hidden": 5, "head": {"hidden": 4}} | model)
    chosen = METHODS[method]()
    torch.manual_seed(3)
    network = chosen.network(Parts(config, classes=3))
    parameters = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    parameters[TABLE] = torch.randn(ROWS, 6)
    if double:
        network, parameters = network.double(), {name: tensor.double() for name, tensor in parameters.items()}
    for module in network.modules():
        if isinstance(module, Encoder):
            module.engine = engine
    parameters = {name: tensor.requires_grad_() for name, tensor in parameters.items()}
    tokens = tiny.token_set(tiny.np.random.default_rng(1), 50, 1, ROWS, LONGEST)
    texts = Texts(tokens, torch.device("cpu"), LONGEST if config.pooling == "mean" else None)
    made = LocalOptimizer({"sgd": SGD, "adam": Adam}[optimizer](lr=0.05), parameters, 0.05, engine == "cells")
    batches = map(texts.batch, shuffled(len(texts), 8, 1, 0, 1, 0))
    outcome = train(Problem(chosen, network, {}), batches, made)
    with torch.no_grad():
        network.eval()
        whole = texts.batch(tiny.np.arange(50))
        probabilities = chosen.probabilities(Model(network, parameters), whole, "both")
    return outcome, {name: tensor.detach() for name, tensor in parameters.items()}, probabilities


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
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: "-".join(map(str, model.values())))
def test_cells_equal_the_reference(method: str, model: dict[str, Any]) -> None:
    expected, cells = epoch("reference", method, model), epoch("cells", method, model)
    for name, value in expected[0].terms.items():
        assert cells[0].terms[name] == pytest.approx(value, rel=1e-9)
    for name, tensor in expected[1].items():
        assert torch.allclose(cells[1][name], tensor, rtol=1e-9, atol=1e-12), name
    assert torch.allclose(cells[2], expected[2], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_cells_in_float32_differ_by_rounding_only(optimizer: str) -> None:
    truth = epoch("reference", "kteps", {}, optimizer)[1]
    for engine in ("reference", "cells"):
        for name, tensor in epoch(engine, "kteps", {}, optimizer, double=False)[1].items():
            assert torch.allclose(tensor.double(), truth[name], atol=2e-4 if optimizer == "adam" else 2e-5), (
                engine,
                name,
            )


@pytest.mark.parametrize(("layer", "gates"), [(GRULayer, 3), (LSTMLayer, 4)])
@pytest.mark.parametrize("lengths", [[2, 4, 1, 4], [1, 1], [3], [1]])
def test_the_gradient_passes_torchs_own_check(layer: Any, gates: int, lengths: list[int]) -> None:
    packing = Packing.of(torch.tensor(lengths))
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, sum(packing.sizes), 3 * gates), (2, 3 * gates, 3), (2, 3 * gates))
    inputs = [torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True) for shape in shapes]
    before = [tensor.detach().clone() for tensor in inputs]
    assert torch.autograd.gradcheck(lambda *tensors: layer.apply(*tensors, packing), inputs)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(inputs, before, strict=True)), (
        "inputs stay as they were"
    )


def test_dropout_strikes_in_training_only_and_follows_the_seed() -> None:
    whole, thinned = epoch("cells", "fedavg", {}), epoch("cells", "fedavg", {"dropout": 0.5})
    assert whole[0].loss != thinned[0].loss
    assert thinned[0].loss == epoch("cells", "fedavg", {"dropout": 0.5})[0].loss
    nearly = epoch("cells", "fedavg", {"dropout": 1e-12})  # every word by itself, and none struck out
    assert nearly[0].loss == pytest.approx(whole[0].loss, rel=1e-9)


def test_auto_takes_cells() -> None:
    assert tiny.experiment().engine == "cells"
    assert tiny.experiment(training={"engine": "reference"}).engine == "reference"
