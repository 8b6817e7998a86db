"""The terms of a method's loss, their weights, and their weighted sum, which is what is trained and logged."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtext.methods import ASPMTL, KTEPS, METHODS, PFLDA, FedMMD, FedProx
from fedtext.methods.base import Batch, Method, Model
from tests import tiny
from tests.fedtext.training.test_engines import run
from tests.loops import nonempty

# Each method with the factors of its terms, as its paper's formula has them.
WEIGHTED: list[tuple[Method, dict[str, float]]] = [
    (KTEPS(lambda1=0.3, lambda2=0.7), {"transfer": 0.3, "diversity": 0.7}),
    (FedProx(mu=0.3), {"proximal": 0.3 / 2}),
    (FedMMD.model_validate({"lambda": 0.7}), {"mmd": 0.7}),
    (PFLDA(shared_loss=0.7), {"ce_shared": 0.7}),
    (ASPMTL(adv=0.7, diff=0.3), {"adversarial": 0.7, "orthogonality": 0.3}),
]
IDS = [method.name for method, _ in WEIGHTED]


def multiplied(method: Method, factors: Mapping[str, float]) -> Method:
    """The same method with the factors inside its terms, which are then summed as they are."""

    class Multiplied(type(method)):  # type: ignore[misc]
        def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
            terms = super().loss(model, received, batch)
            return {name: factors[name] * term if name in factors else term for name, term in terms.items()}

        @property
        def weights(self) -> Mapping[str, float]:
            return {}

    return Multiplied(**method.model_dump())


@pytest.mark.parametrize(("method", "factors"), WEIGHTED, ids=IDS)
@pytest.mark.parametrize(("engine", "clients"), [("reference", [0]), ("cells", [0]), ("cells", [0, 1, 2])])
def test_what_is_trained_is_the_formula_to_the_last_bit(
    method: Method, factors: dict[str, float], engine: str, clients: list[int]
) -> None:
    if len(clients) > 1 and (method.reads_table or method.pooled):
        clients = [1]
    got = run(engine, method, {}, clients=clients, dtype=torch.float32)
    expected = run(engine, multiplied(method, factors), {}, clients=clients, dtype=torch.float32)
    for ours, formula in nonempty(zip(got, expected, strict=True)):
        for name, tensor in nonempty(formula.after.items()):
            assert torch.equal(ours.after[name], tensor), name
        for name, value in nonempty(formula.terms.items()):
            assert factors.get(name, 1) * ours.terms[name] == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("name", METHODS)
def test_every_weight_is_of_a_term(name: str) -> None:
    method = METHODS[name]()
    model, batch = tiny.model_and_batch(method)
    received = {parameter: tensor.detach() for parameter, tensor in model.parameters.items()}
    terms = method.loss(model, received, batch)
    assert {term for term, weight in method.weights.items() if weight} <= set(terms)
    expected = sum(method.weights.get(term, 1) * value.item() for term, value in terms.items())
    assert method.objective(terms).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("method", "factors"), WEIGHTED, ids=IDS)
def test_a_term_does_not_depend_on_its_weight_and_is_left_out_at_0(method: Method, factors: dict[str, float]) -> None:
    keys = [key for key, value in method.model_dump().items() if value in (0.3, 0.7)]
    assert len(keys) == len(factors)
    model, batch = tiny.model_and_batch(method, clients=3)
    received = {name: tensor.detach() - 0.5 for name, tensor in model.parameters.items()}
    changed, without = (type(method)(**method.model_dump() | dict.fromkeys(keys, value)) for value in (5, 0))
    terms = method.loss(model, received, batch)
    assert terms == changed.loss(model, received, batch)
    assert all(nonempty(terms[name] != 0 for name in factors))
    assert changed.objective(terms) != method.objective(terms)
    assert set(without.loss(model, received, batch)) == set(terms) - set(factors)


@pytest.mark.parametrize(
    ("term", "configured", "other"),
    [
        ("transfer", {"name": "kteps", "lambda1": 0.1}, {"name": "kteps", "lambda1": 10}),
        ("diversity", {"name": "kteps", "lambda2": 0.1}, {"name": "kteps", "lambda2": 5}),
        ("ce_shared", {"name": "pfl_da", "shared_loss": 0.1}, {"name": "pfl_da", "shared_loss": 3}),
    ],
)
def test_a_logged_term_does_not_carry_its_weight(term: str, configured: dict[str, Any], other: dict[str, Any]) -> None:
    """One step: nothing has moved when the terms are computed, so no weight can have changed them."""
    training = {"rounds": 1, "local_epochs": 1, "batch_size": 999, "optimizer": {"lr": 0.1}}
    first, second = (tiny.Finished(method, training=training).rows[0].metrics for method in (configured, other))
    assert first[f"loss_{term}"] == second[f"loss_{term}"]
    assert first[f"loss_{term}"] != 0
    assert first["loss"] != second["loss"]
    weights = tiny.experiment(configured).method.weights
    parts = [weights.get(name[5:], 1) * value for name, value in first.items() if name.startswith("loss_")]
    assert first["loss"] == pytest.approx(sum(parts), rel=1e-12)
