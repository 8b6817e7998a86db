"""A part of a model without second derivatives refuses them: torch.autograd.grad would leave them out silently."""

from typing import Any

import numpy as np
import pytest
import torch

from fedtext.errors import UserError
from fedtext.methods.base import Model
from fedtext.methods.fedavg import FedAvg
from fedtext.models.bag import BagClassifier
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.testing import tiny
from fedtext.testing.epochs import CPU
from fedtext.training.batches import Assembler, Texts

GRU = RecurrentClassifier.model_validate({"name": "gru", "embedding": {"dim": 4}, "hidden": 3, "head": {"hidden": 5}})
LSTM = GRU.model_copy(update={"name": "lstm"})
BAG = BagClassifier.model_validate({"embedding": {"dim": 4}})
ROWS = 30


def curvature(config: Any, engine: str) -> dict[str, torch.Tensor]:
    """Return the gradient of the squared norm of the loss's gradient, by parameter."""
    torch.manual_seed(0)
    network = FedAvg().network(Parts(config, 3)).double()
    drawn = {name: tensor.detach().clone() for name, tensor in network.named_parameters()}
    drawn["embedding.weight"] = torch.randn(ROWS, 4, dtype=torch.float64)
    leaves = {name: tensor.requires_grad_() for name, tensor in drawn.items()}
    directions = 1 if engine != "reference" and isinstance(config, RecurrentClassifier) else None
    texts = Texts(tiny.token_set(np.random.default_rng(0), 6, 1, ROWS), ROWS, None)
    batch, _ = Assembler(directions, False, CPU, engine).single(texts, np.arange(6))
    loss = Model(network, leaves).cross_entropy(batch)
    first = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
    second = torch.autograd.grad(torch.stack([g.square().sum() for g in first]).sum(), list(leaves.values()))
    return dict(zip(leaves, second, strict=True))


@pytest.mark.parametrize("config", [GRU, LSTM], ids=["gru", "lstm"])
@pytest.mark.parametrize("engine", ["cells", "native"])
def test_engines_refuse_second_derivatives_that_they_do_not_have(config: Any, engine: str) -> None:
    assert torch.stack([tensor.abs().sum() for tensor in curvature(config, "reference").values()]).sum() > 0
    with pytest.raises(UserError, match=r"differentiates a gradient .*training.engine: reference"):
        curvature(config, engine)


@pytest.mark.parametrize("engine", ["reference", "native"])
def test_bags_of_words_refuse_second_derivatives(engine: str) -> None:
    with pytest.raises(UserError, match=r"use a recurrent model, or a transformer with attention: eager"):
        curvature(BAG, engine)
