"""Methods that replace modules of their network: engine native leaves to torch what its C functions do not compute."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtext.errors import UserError
from fedtext.methods import KTEPS, FedAvg
from fedtext.methods.base import Batch, Method, Model
from fedtext.methods.native_kteps import Branches, Terms
from fedtext.models.bag import BagClassifier, Dense
from fedtext.models.base import Embedding
from fedtext.models.parts import Parts, SingleBranch
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.runtime.compiled import compile_problem
from fedtext.testing.epochs import Client, Trained, epoch
from fedtext.training.config import SGD
from tests import tiny
from tests.loops import nonempty

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
CLIENT = Client(tiny.token_set(np.random.default_rng(0), 17, 1, 30, 6), 30)


def trained(engine: str, method: Method, model: dict[str, Any]) -> Trained:
    keys = {"name": "gru", "embedding": {"dim": 4}, "hidden": 16, "head": {"hidden": 3}} | model
    return epoch(engine, method, RecurrentClassifier.model_validate(keys), [CLIENT], SGD(lr=0.05), longest=12)[0]


def check_native(method: Method, model: dict[str, Any]) -> None:
    """Check that engine native trains as the reference does."""
    got, expected = (trained(engine, method, model) for engine in ("native", "reference"))
    assert got.terms == pytest.approx(expected.terms, rel=1e-9)
    for name, tensor in nonempty(expected.after.items()):
        assert torch.allclose(got.after[name], tensor, rtol=1e-9, atol=1e-9), name


class Scaled(nn.Linear):
    """A layer of another kind that is a Linear."""

    def forward(self, features_BF: Tensor) -> Tensor:
        return 2 * super().forward(features_BF)


class Replaced(KTEPS):
    """KTEPS with projections or heads of its own."""

    name: str = "replaced"  # type: ignore[assignment]
    kind: str

    def network(self, parts: Parts) -> nn.Module:
        network, width = super().network(parts), parts.features
        for projection in ("projection_shared", "projection_private"):
            setattr(network, projection, self.projected(width))
        if self.kind == "narrow":
            network.head_shared, network.head_private = parts.head(3), parts.head(3)
        elif self.kind == "wider private head":
            network.head_private = nn.Sequential(nn.Linear(width, 40), nn.ReLU(), nn.Linear(40, parts.classes))
        elif self.kind == "deeper private head":
            network.head_private = nn.Sequential(nn.Linear(width, 3), nn.ReLU(), *parts.head(3))
        return network

    def projected(self, width: int) -> nn.Module:
        """Build a projection of features of this width."""
        if self.kind == "tanh":
            return nn.Sequential(nn.Linear(width, width), nn.Tanh())
        if self.kind == "scaled":
            return Scaled(width, width)
        if self.kind == "none":
            return nn.Identity()
        return nn.Linear(width, 3 if self.kind == "narrow" else width, bias=self.kind != "unbiased")


KINDS = ("tanh", "narrow", "scaled", "unbiased", "none", "wider private head", "deeper private head")


@pytest.mark.parametrize("pooling", ["masked_mean", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_kteps_with_other_layers_has_the_terms_of_the_reference(kind: str, pooling: str) -> None:
    """The loss of a model with pooling ``last`` is computed with autograd, and its terms in C alone."""
    check_native(Replaced(kind=kind), {"pooling": pooling})


class Projected(KTEPS):
    """KTEPS with projections although it is said to have none."""

    name: str = "projected"  # type: ignore[assignment]

    def network(self, parts: Parts) -> nn.Module:
        network = super().network(parts)
        network.projection_shared, network.projection_private = parts.projection(), parts.projection()
        return network


def test_projections_of_a_method_without_are_applied() -> None:
    check_native(Projected(projection=False, lambda2=0), {})


@pytest.mark.parametrize(
    "shapes", [[(3, 4)], [(4, 4), (3, 4)], [(3, 4), (5, 4)]], ids=["no projection", "a branch is missing", "another"]
)
def test_tensors_that_c_would_read_beyond_are_refused(shapes: list[tuple[int, int]]) -> None:
    parameters = [torch.zeros(size) for out, wide in shapes for size in ((out, wide), (out,))]
    asked = Terms(torch.zeros(2, dtype=torch.int64), len(shapes) < 2, 1.0, False, False, 0.0)
    with pytest.raises(AssertionError):
        Branches.compute(asked, torch.zeros(2, 4), torch.zeros(2, 4), parameters)


class Twice(nn.Embedding):
    """An embedding whose vectors are not the rows of its table."""

    def forward(self, tokens: Tensor) -> Tensor:
        return 2 * super().forward(tokens).tanh()


def doubled(module: nn.Module, inputs: object, outputs: Tensor) -> Tensor:
    """A hook that doubles outputs."""
    return 2 * outputs


def changed(network: nn.Module, kind: str) -> nn.Module:
    """Give a network a hook, or another embedding."""
    head = "head" if hasattr(network, "head") else "head_private"
    if kind == "embedding":
        network.embedding = Twice(1, network.embedding.embedding_dim)
    elif kind == "forward":
        inner = network.get_submodule(head).forward
        network.get_submodule(head).forward = lambda features_BF: 3 * inner(features_BF)  # type: ignore[method-assign]
    elif kind == "before":
        network.encoder.register_forward_pre_hook(lambda module, inputs: (inputs[0], replace(inputs[1], task=1)))
    elif kind != "network":
        network.get_submodule({"head": head, "layer": f"{head}.2"}.get(kind, kind)).register_forward_hook(doubled)
    elif isinstance(network, SingleBranch):
        network.register_forward_hook(doubled)
    else:
        network.register_forward_hook(lambda module, inputs, outputs: tuple(2 * each for each in outputs))
    return network


class Changed(FedAvg):
    """A method with such a network."""

    name: str = "changed"  # type: ignore[assignment]
    kind: str

    def network(self, parts: Parts) -> nn.Module:
        return changed(super().network(parts), self.kind)


class ChangedKTEPS(KTEPS):
    """KTEPS with such a network."""

    name: str = "changed_kteps"  # type: ignore[assignment]
    kind: str

    def network(self, parts: Parts) -> nn.Module:
        return changed(super().network(parts), self.kind)


CHANGES = ["head", "layer", "encoder", "network", "before", "forward", "embedding"]


@pytest.mark.parametrize("kind", CHANGES)
def test_hooks_and_another_forward_are_called(kind: str) -> None:
    check_native(Changed(kind=kind), {})
    check_native(Changed(kind=kind), {"layers": 2, "pooling": "last"})


@pytest.mark.parametrize("kind", [*CHANGES, "projection_shared"])
def test_hooks_and_another_forward_are_called_in_kteps(kind: str) -> None:
    check_native(ChangedKTEPS(kind=kind), {})


@pytest.mark.parametrize("engine", ["cells", "native"])
def test_clients_of_a_stack_have_another_embedding_too(engine: str) -> None:
    keys = RecurrentClassifier(name="gru", hidden=5, embedding=Embedding(dim=4))
    clients, method = [CLIENT, replace(CLIENT, rows=32)], Changed(kind="embedding")
    together = epoch(engine, method, keys, clients, SGD(lr=0.05))
    expected = epoch("reference", method, keys, [CLIENT], SGD(lr=0.05))[0]
    for name, tensor in nonempty(expected.after.items()):
        assert torch.allclose(together[0].after[name], tensor, rtol=1e-9, atol=1e-9), name


class Padded(FedAvg):
    """A method whose embedding has a row for padding."""

    name: str = "padded"  # type: ignore[assignment]

    def network(self, parts: Parts) -> nn.Module:
        network = super().network(parts)
        network.embedding = nn.Embedding(1, parts.config.embedding.dim, padding_idx=0)
        return network


def test_a_row_of_the_table_that_the_engine_does_not_know_is_refused() -> None:
    with pytest.raises(UserError, match=r"Embedding has a padding_idx: set training.engine to reference"):
        trained("native", Padded(), {})


@pytest.mark.parametrize("part", ["head", "encoder", ""])
def test_hooks_are_called_in_bags(part: str) -> None:
    calls: list[int] = []
    network = FedAvg().network(Parts(BagClassifier(hidden=(4,)), 2))
    assert isinstance(network, SingleBranch)
    assert network.fused() is not None
    network.get_submodule(part).register_forward_hook(lambda *arguments: calls.append(1))
    assert network.fused() is None
    tokens_BT = torch.zeros(3, 1, dtype=torch.int64)
    batch = Batch(tokens_BT, torch.ones(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), native=True)
    Model(network, {}).cross_entropy(batch)
    assert calls


class Unfitting(FedAvg):
    """A method whose layers have other widths than their inputs."""

    name: str = "unfitting"  # type: ignore[assignment]
    widths: tuple[int, int]

    def network(self, parts: Parts) -> nn.Module:
        network = super().network(parts)
        narrow, wide = self.widths
        network.head = nn.Sequential(nn.Linear(narrow, 3), nn.ReLU(), nn.Linear(wide, 2))
        return network


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("widths", [(16, 5), (99, 3)])
def test_layers_of_other_widths_are_an_error_of_torch(engine: str, widths: tuple[int, int]) -> None:
    """C takes widths for what they are, and would read memory that is none of the features'."""
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        trained(engine, Unfitting(widths=widths), {})


@pytest.mark.parametrize("widths", [(4, 9, 2), (4, 2)])
def test_a_bag_of_another_width_is_left_to_torch(widths: tuple[int, ...]) -> None:
    dense = Dense(*widths)
    assert dense.scores(4)
    assert not dense.scores(5)
    dense[-1] = nn.Linear(widths[-2] + 1, 2)
    assert not dense.scores(4)
