"""Methods that replace modules of their network: engine native leaves to torch what its C functions do not compute."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtext.methods import KTEPS
from fedtext.methods.base import Method
from fedtext.methods.native_kteps import Branches, Terms
from fedtext.models.parts import Parts
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
