"""The bag of words: equal to a dense network on vectors of zeros and ones, and at home in every method."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtext.config.engine import stack_size
from fedtext.corpora.types import TokenSet
from fedtext.layout import TABLE, Layout
from fedtext.methods import METHODS, FedAvg
from fedtext.methods.base import Batch, Model
from fedtext.models.bag import BagClassifier, LogisticClassifier
from fedtext.models.parts import Parts, SingleBranch
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.parameters import initial
from fedtext.runtime.compiled import compile_problem
from fedtext.training.batches import Assembler, Texts, shuffled
from fedtext.training.config import SGD, Adam
from fedtext.training.local import Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace
from tests import tiny
from tests.loops import nonempty

CPU, ROWS, TEXTS = torch.device("cpu"), 40, 50
BAG: dict[str, Any] = {"name": "bag", "embedding": {"dim": 6}, "hidden": [5, 4]}
BAG_CONFIG = BagClassifier.model_validate(BAG)
NATIVE = pytest.param("native", marks=pytest.mark.skipif(bool(compile_problem()), reason=compile_problem()))


def texts() -> tuple[TokenSet, np.ndarray]:
    """Texts with repeated words, and the same as vectors of zeros and ones."""
    tokens = tiny.token_set(np.random.default_rng(0), TEXTS, 1, ROWS, longest=20)
    vectors = np.zeros((TEXTS, ROWS))
    for text in range(TEXTS):
        vectors[text, tokens.tokens_T[tokens.offsets[text] : tokens.offsets[text + 1]]] = 1
    return tokens, vectors


@pytest.mark.parametrize("engine", ["reference", NATIVE])
@pytest.mark.parametrize("optimizer", [SGD(lr=0.1), Adam(lr=0.01)], ids=["sgd", "adam"])
def test_an_epoch_equals_that_of_the_dense_network(optimizer: SGD | Adam, engine: str) -> None:
    tokens, vectors = texts()
    method = FedAvg()
    torch.manual_seed(0)
    network = method.network(Parts(BAG_CONFIG, classes=2)).double()
    drawn = {name: parameter.detach() for name, parameter in network.named_parameters()}
    drawn[TABLE] = torch.randn(ROWS, 6, dtype=torch.float64)
    stack = Stack(Layout({n: tuple(t.shape) for n, t in drawn.items()}), [ROWS], Workspace(CPU, torch.float64))
    ours = stack.tensors(0)
    for name, tensor in ours.items():
        tensor.copy_(drawn[name])
    sizes = [(ROWS, 6), (6, 5), (5, 4), (4, 2)]
    layers: list[nn.Module] = [layer for wide, narrow in sizes for layer in (nn.Linear(wide, narrow), nn.ReLU())]
    dense = nn.Sequential(*layers[:-1]).double()
    names = [TABLE, "encoder.bias", *(f"head.{n}.{part}" for n in range(3) for part in ("weight", "bias"))]
    for name, parameter in zip(names, dense.parameters(), strict=True):
        parameter.data = drawn[name].T.clone() if name == TABLE else drawn[name].clone()
    parameters = list(dense.parameters())
    plain = (
        torch.optim.Adam(parameters, lr=optimizer.lr)
        if isinstance(optimizer, Adam)
        else torch.optim.SGD(parameters, lr=optimizer.lr, momentum=optimizer.momentum)
    )
    order, losses = list(shuffled(TEXTS, 8, 1, 0, 1, 0)), []
    for chosen in order:
        plain.zero_grad()
        loss = cross_entropy(dense(torch.from_numpy(vectors[chosen])), torch.from_numpy(tokens.labels_N[chosen]))
        loss.backward()
        plain.step()
        losses.append(len(chosen) * loss.item())
    work = Work(Texts(tokens, ROWS, as_sets=True), order)
    made = LocalOptimizer(optimizer, stack, optimizer.lr)
    (outcome,) = train(Problem(method, network, {}), Assembler(None, False, CPU, engine), made, [work])
    assert outcome.loss == pytest.approx(sum(losses) / TEXTS, rel=1e-9)
    for name, parameter in zip(names, parameters, strict=True):
        expected = parameter.detach().T if name == TABLE else parameter.detach()
        assert not torch.equal(ours[name], drawn[name])
        assert torch.allclose(ours[name], expected, rtol=1e-9, atol=1e-12), name
    assert torch.equal(ours[TABLE][0], drawn[TABLE][0]), "nothing is learnt of <pad>"


@pytest.mark.parametrize("engine", ["reference", NATIVE])
@pytest.mark.parametrize("valued", [False, True], ids=["plain", "values"])
def test_the_gradient_passes_torchs_own_check_and_stops_at_a_texts_length(engine: str, valued: bool) -> None:
    """With numbers beyond a text's length that no table has."""
    torch.manual_seed(1)
    network = FedAvg().network(Parts(BAG_CONFIG, classes=3)).double()
    named = {n: p.detach().clone().requires_grad_() for n, p in network.named_parameters()}
    named[TABLE] = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    lengths_B = torch.tensor([3, 1, 5, 2])
    tokens_BT = torch.stack([torch.randperm(10)[:5] + 1 for _ in lengths_B])
    tokens_BT[torch.arange(5) >= lengths_B[:, None]] = 999
    values_BT = torch.randn(4, 5) if valued else None

    def logits(*values: torch.Tensor) -> torch.Tensor:
        batch = Batch(tokens_BT, lengths_B, torch.tensor([0, 2, 1, 1]), values_BT=values_BT, native=engine == "native")
        return Model(network, dict(zip(named, values, strict=True)))(batch)

    assert torch.autograd.gradcheck(logits, tuple(named.values()))
    added = logits(*named.values()).detach()
    engine = "reference"
    assert torch.allclose(logits(*named.values()).detach(), added, rtol=1e-12, atol=1e-14)


@pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
@pytest.mark.parametrize("valued", [False, True], ids=["plain", "values"])
@pytest.mark.parametrize(
    ("config", "classes"),
    [(BAG_CONFIG, 3), (BagClassifier.model_validate(BAG | {"output": "sigmoid"}), 2), (LogisticClassifier(), 2)],
    ids=["softmax", "sigmoid", "logistic"],
)
def test_the_loss_in_c_and_its_gradient_are_those_of_torchs_cross_entropy(
    config: BagClassifier | LogisticClassifier, classes: int, valued: bool
) -> None:
    torch.manual_seed(2)
    network = FedAvg().network(Parts(config, classes)).double()
    named = {n: torch.randn_like(p).requires_grad_() for n, p in network.named_parameters()}
    named[TABLE] = torch.randn(11, config.embedding.dim, dtype=torch.float64, requires_grad=True)
    lengths_B, labels_B = torch.tensor([3, 1, 5, 2, 4]), torch.arange(5) % classes
    tokens_BT = torch.stack([torch.randperm(10)[:5] + 1 for _ in lengths_B])
    batch = Batch(tokens_BT, lengths_B, labels_B, values_BT=torch.rand(5, 5) if valued else None, native=True)
    model = Model(network, named)
    ours, plain = model.cross_entropy(batch), cross_entropy(model(batch), labels_B)
    assert ours.grad_fn is not None
    assert type(ours.grad_fn).__name__.startswith("BagLoss")
    assert ours.item() == pytest.approx(plain.item(), rel=1e-12)
    found, wanted = (torch.autograd.grad(3 * loss, list(named.values())) for loss in (ours, plain))
    for name, ours_grad, theirs in nonempty(list(zip(named, found, wanted, strict=True))):
        assert theirs.any(), name
        assert torch.allclose(ours_grad, theirs, rtol=1e-10, atol=1e-13), name
    with torch.no_grad():
        assert model.cross_entropy(batch).item() == ours.item()
    frozen = named | {TABLE: named[TABLE].detach()}
    rest = [tensor for name, tensor in frozen.items() if name != TABLE]
    for ours_grad, theirs in nonempty(
        list(zip(torch.autograd.grad(3 * Model(network, frozen).cross_entropy(batch), rest), found[1:], strict=True))
    ):
        assert torch.equal(ours_grad, theirs)


@pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
def test_a_network_with_other_logits_has_the_loss_of_these() -> None:
    class Doubled(SingleBranch):
        def forward(self, batch: Batch) -> torch.Tensor:
            return 2 * super().forward(batch)

    network = Doubled(Parts(BAG_CONFIG, 3))
    named = dict(network.named_parameters()) | {TABLE: torch.randn(11, 6)}
    labels_B = torch.tensor([0, 1])
    batch = Batch(torch.tensor([[1, 2], [3, 5]]), torch.tensor([2, 2]), labels_B, native=True)
    model = Model(network, named)
    assert model.cross_entropy(batch).item() == cross_entropy(model(batch), labels_B).item()


@pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
def test_the_loss_in_c_is_not_a_number_where_its_input_is_not() -> None:
    network = FedAvg().network(Parts(BAG_CONFIG, 3))
    named = dict(network.named_parameters()) | {TABLE: torch.randn(11, 6)}
    named[TABLE][4, 2] = torch.nan
    lengths_B = torch.tensor([2, 2])
    for tokens, nan in nonempty([([[1, 2], [3, 5]], False), ([[1, 2], [4, 5]], True)]):
        batch = Batch(torch.tensor(tokens), lengths_B, torch.tensor([0, 1]), native=True)
        assert bool(Model(network, named).cross_entropy(batch).isnan()) == nan


@pytest.mark.parametrize("cut", [False, True], ids=["bag", "bigru"])
def test_an_optimizer_that_is_recalled_goes_on_as_if_it_had_not_stopped(cut: bool) -> None:
    """The steps of the table are remembered too: Adam's first ones are larger."""
    config = RecurrentClassifier.model_validate({"embedding": {"dim": 6}, "hidden": 3}) if cut else BAG_CONFIG
    torch.manual_seed(0)
    network = FedAvg().network(Parts(config, classes=2)).double()
    drawn = {n: p.detach() for n, p in network.named_parameters()} | {TABLE: torch.randn(ROWS, 6).double()}
    data, order = Texts(texts()[0], ROWS, as_sets=not cut), list(shuffled(TEXTS, 8, 1, 0, 1, 0))
    problem, assembler = Problem(FedAvg(), network, {}), Assembler(2 if cut else None, cut, CPU)
    ends = []
    for parts in ([order], [order[:3], order[3:]]):
        stack = Stack(Layout({n: tuple(t.shape) for n, t in drawn.items()}), [ROWS], Workspace(CPU, torch.float64))
        for name, tensor in stack.tensors(0).items():
            tensor.copy_(drawn[name])
        state: dict[str, torch.Tensor] = {}
        for part in parts:
            optimizer = LocalOptimizer(Adam(lr=0.01), stack, 0.01, cut)
            optimizer.recall(0, state)
            train(problem, assembler, optimizer, [Work(data, part)])
            state = {name: tensor.clone() for name, tensor in optimizer.state(0).items()}
        ends.append(stack.tensors(0))
    for name, tensor in nonempty(ends[0].items()):
        assert torch.equal(ends[1][name], tensor), name


def test_a_text_is_the_set_of_its_words() -> None:
    tokens = TokenSet(np.array([3, 1, 3, 3, 2, 2], np.int32), np.array([0, 4, 5, 6]), np.array([0, 1, 0]))
    made = Texts(tokens, 4, as_sets=True)
    assert made.lengths_N.tolist() == [2, 1, 1]
    assert made.padded_NT.tolist() == [[1, 3], [2, 0], [2, 0]]
    assert made.labels_N.tolist() == [0, 1, 0]


SHARES_TABLE = {name: name not in ("fedevocab", "lg_fedavg", "asp_mtl", "local_only", "pooled") for name in METHODS}


def final(**changes: Any) -> tuple[bytes, list[Any]]:
    experiment, corpus = tiny.experiment(**({"model": BAG} | changes)), tiny.corpus()
    federation = tiny.federation(experiment, corpus)
    return federation.flat.tobytes(), [record.clients for record in federation.run()], federation.flat.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_a_bag_with_own_rows_or_all(method: str, engine: str) -> None:
    training = tiny.TRAINING | {"engine": engine}
    before, scores, after = final(method=method, training=training)
    assert (before == after) == (method == "local_only")
    assert len(scores[-1]) == 3
    everywhere: Any = {"method": method, "training": training, "wire": {"rows": "all"}}
    if SHARES_TABLE[method]:
        assert final(**everywhere) == (before, scores, after)
    else:
        with pytest.raises(ValueError, match=f"wire.rows: all .*, and method {method} shares none"):
            final(**everywhere)


def test_dropout_of_a_bag_strikes_in_training_only_and_follows_the_seed() -> None:
    whole, thinned, again = (final(model=BAG | {"dropout": share}) for share in (0, 0.5, 0.5))
    assert whole != thinned
    assert thinned == again


def test_bags_are_trained_one_by_one() -> None:
    assert stack_size(tiny.experiment(model=BAG), 1000)[0] == 1
    assert tiny.experiment(model=BAG, training={"stack": 1}).training.stack == 1
    with pytest.raises(ValueError, match="model bag has no recurrent layers for cells"):
        tiny.experiment(model=BAG, training={"engine": "cells"})
    with pytest.raises(ValueError, match="clients with model bag are trained one by one"):
        tiny.experiment(model=BAG, training={"stack": 4})


def test_the_table_starts_as_widely_spread_as_a_dense_layers_weights() -> None:
    experiment = tiny.experiment(model={"name": "bag"})
    shared, _ = initial(experiment, tiny.corpus(vocabulary=2000))
    assert shared[TABLE].shape == (1999, 100), "all but <pad>"
    assert shared[TABLE].std() == pytest.approx(0.02, rel=0.02)
    assert experiment.model.model_dump()["hidden"] == (50, 25)
