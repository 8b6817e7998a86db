"""A softmax over one class has loss 0 and moves nothing; a single sigmoid unit is for two classes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtext.layout import Layout
from fedtext.methods import KTEPS, FedAvg, FedProx
from fedtext.methods.base import Method
from fedtext.models.bag import BagClassifier
from fedtext.models.base import ClassifierConfig
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.runtime.compiled import compile_problem
from fedtext.training.batches import Assembler, Texts
from fedtext.training.config import SGD
from fedtext.training.local import Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace
from tests import tiny
from tests.loops import nonempty

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
ROWS, CPU = 20, torch.device("cpu")
GRU = RecurrentClassifier(name="gru", hidden=5)


def step(method: Method, config: ClassifierConfig) -> tuple[dict[str, float], dict[str, Tensor], dict[str, Tensor]]:
    """Take one step on texts of one class; return the loss terms, and the parameters before and after."""
    torch.manual_seed(0)
    network = method.network(Parts(config, 1)).double()
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    stack = Stack(Layout(shapes), [ROWS], Workspace(CPU, torch.float64))
    for tensor in stack.tensors(0).values():
        tensor.copy_(torch.randn(tensor.shape, dtype=torch.float64) / 4)
    before = {name: tensor.clone() for name, tensor in stack.tensors(0).items()}
    tokens = tiny.token_set(np.random.default_rng(0), 9, 1, ROWS, 5)
    texts = Texts(replace(tokens, labels_N=0 * tokens.labels_N), ROWS, as_sets=config.as_sets)
    assembler = Assembler(None if config.as_sets else 1, not method.reads_table, CPU, "native")
    optimizer = LocalOptimizer(SGD(lr=0.1), stack, 0.1, not method.reads_table, native=True)
    (outcome,) = train(Problem(method, network, before), assembler, optimizer, [Work(texts, [np.arange(8)])])
    return outcome.terms, before, stack.tensors(0)


@pytest.mark.parametrize("method", [FedAvg(), FedProx(mu=0)])
@pytest.mark.parametrize("model", [GRU, BagClassifier(hidden=(4,)), BagClassifier(hidden=())])
def test_one_class_has_no_loss_and_moves_nothing(method: Method, model: ClassifierConfig) -> None:
    """FedAvg has its whole loss in C, and FedProx the cross-entropy of bags alone."""
    terms, before, after = step(method, model)
    assert terms["ce"] == 0
    for name, tensor in nonempty(before.items()):
        assert torch.equal(after[name], tensor), name


def test_kteps_of_one_class_has_no_cross_entropy() -> None:
    terms, _, _ = step(KTEPS(), GRU)
    assert (terms["ce_shared"], terms["ce_private"], terms["transfer"]) == (0, 0, 0)
