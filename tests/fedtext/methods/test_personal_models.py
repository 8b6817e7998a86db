"""Methods whose clients keep a part of the model, or a model of their own: FedPer, LG-FedAvg, Ditto, APFL."""

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from torch import Tensor

from fedtext.layout import TABLE
from fedtext.methods import APFL, Ditto, FedPer
from fedtext.methods.apfl import ALPHA, Clamped
from fedtext.methods.base import Model
from fedtext.parameters import initial
from tests import tiny
from tests.fedtext.methods.objectives import CORPUS, renamed
from tests.loops import nonempty


@pytest.mark.parametrize("stacked", [False, True])
def test_the_weight_of_a_mixture_stops_at_its_bounds_and_leaves_them(stacked: bool) -> None:
    value = torch.tensor([1.2, 1.2, -0.3, -0.3, 0.4, 1.0, 0.0])
    gradient = torch.tensor([-1.0, 0.5, 1.0, -0.5, 2.0, -1.0, 1.0])

    def weighted(value: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        clamped: Tensor = Clamped.apply(value)  # type: ignore[no-untyped-call]
        return (clamped * gradient).sum(), clamped

    slope = torch.func.grad(weighted, has_aux=True)
    found, clamped = (torch.vmap(slope) if stacked else slope)(value, gradient)
    assert clamped.tolist() == pytest.approx([1, 1, 0, 0, 0.4, 1, 0])
    assert found.tolist() == [0, 0.5, 0, -0.5, 2, 0, 0]


class NothingPrivate(FedPer):
    def private(self, parameter: str) -> bool:
        return False


def test_fedper_whose_private_set_is_empty_is_fedavg() -> None:
    assert np.array_equal(tiny.Finished(NothingPrivate()).flat, tiny.Finished("fedavg").flat)
    assert not np.array_equal(tiny.Finished(FedPer()).state[TABLE], tiny.Finished("fedavg").state[TABLE])


@pytest.mark.parametrize("method", ["fedper", "lg_fedavg"])
def test_a_cut_model_is_read_with_the_clients_own_part_and_has_no_ag(method: str) -> None:
    made = tiny.Finished(method)
    assert [set(record.clients["client0"]) for record in made.rows] == [{"Ap_0"}, {"Ap_0", "Ap"}]
    sure = {"head.2.bias": np.array([0, 99], np.float32)}  # by this head all texts are of the second class
    if method == "fedper":
        made.worker.private[0] |= sure
    else:
        made.layout.views(made.flat)["head.2.bias"][:] = sure["head.2.bias"]
    scores = made.worker.evaluate(made.flat, 2, [0], final=False)
    assert scores[0].metrics == {"Ap_0": pytest.approx(CORPUS.clients[0].test.labels_N.mean())}


@pytest.mark.parametrize("method", ["ditto", "apfl"])
def test_a_personal_model_begins_as_the_shared_one(method: str) -> None:
    shared, private = initial(tiny.experiment(method), CORPUS)
    own = renamed({name: torch.from_numpy(tensor) for name, tensor in private.items()})
    assert all(nonempty(np.array_equal(own[name], tensor) for name, tensor in shared.items()))


@pytest.mark.parametrize("stack", [1, 2])
@pytest.mark.parametrize(
    "optimizer", [{"name": "sgd", "lr": 3.0, "momentum": 0.5}, {"name": "adam", "lr": 0.4}], ids=str
)
def test_each_step_ends_with_alpha_between_0_and_1(optimizer: dict[str, Any], stack: int) -> None:
    training = tiny.TRAINING | {"rounds": 1, "optimizer": optimizer, "stack": stack}
    run = tiny.Finished("apfl", tiny.corpus(2, 12), training=training, evaluation={"personalize": None})
    states = [load(state) for state in run.fleet.private_states().values()]
    found = [float(state[ALPHA][0]) for state in nonempty(states)]
    assert all(0 <= alpha <= 1 for alpha in found)
    assert {0.0, 1.0} & set(found), "or the steps were too short to reach a bound"


@pytest.mark.parametrize(
    ("method", "learnt", "share"),
    [
        (Ditto(), None, 1.0),
        (APFL(), 0.3, 0.3),
        (APFL(), 1.5, 1.0),  # it is held within [0, 1]
        (APFL(), -0.5, 0.0),
        (APFL(adaptive=False, alpha=0.0), 0.3, 0.0),
        (APFL(adaptive=False, alpha=0.7), 0.3, 0.7),
        (APFL(adaptive=False, alpha=1.0), 0.3, 1.0),
    ],
    ids=str,
)
def test_a_client_uses_the_shared_model_its_own_or_what_lies_between(
    method: Ditto | APFL, learnt: float | None, share: float
) -> None:
    model, batch = tiny.model_and_batch(method)
    if learnt is not None:
        model.parameters["alpha_private.value"] = torch.tensor([learnt], dtype=torch.float64)
    own = renamed(model.parameters)
    for inference, alpha in (("shared", 0.0), ("private", 1.0), ("both", share)):
        mixed = {n: alpha * own[n] + (1 - alpha) * t for n, t in model.parameters.items() if "_private" not in n}
        expected = Model(model.network, model.parameters | mixed)(batch).softmax(1)
        found = method.probabilities(model, batch, inference)  # type: ignore[arg-type]
        assert torch.allclose(found, expected, atol=1e-12), inference
    assert not torch.allclose(found, model(batch).softmax(1)) or share == 0
