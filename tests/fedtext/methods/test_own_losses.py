"""Losses that read the client's state or take gradients themselves, and hooks that read terms and steps of training."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtext.config.compatibility import problems
from fedtext.config.engine import choose_engine, stack_size
from fedtext.methods.base import Batch, Method, Model
from fedtext.methods.fedavg import FedAvg
from fedtext.methods.state import Local, State, Tensors
from fedtext.testing import check_method
from tests import tiny
from tests.fedtext.methods.stateful import EPOCHS, LR, configured, trained


def with_method(method: Method, **changes: Any) -> Any:
    made = tiny.configured(**changes).model_copy(update={"method": method})
    return choose_engine(made, False, "")


class Pulled(FedAvg):
    """Clients that are drawn to what they keep: one more than what they last received."""

    name: Literal["pulled"] = "pulled"  # type: ignore[assignment]
    reads_state = True
    language = False
    examplewise = False

    def client_state(self, received: Tensors) -> State:
        return {"aim": received}

    def after_update(self, local: Local) -> tuple[State, State]:
        return {"aim": Tensors({name: tensor + 1 for name, tensor in local.received.items()})}, {}

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        aim = model.state["aim"]
        return {"pull": torch.stack([(model.parameters[name] - aim[name]).square().sum() for name in aim]).sum()}


def test_a_loss_reads_the_state_of_its_client() -> None:
    federation, _, start = trained(configured("fedavg").model_copy(update={"method": Pulled()}))
    way = 1 - (1 - 2 * LR) ** EPOCHS  # of the distance to the aim: 0 in the first round, then 1, then 1 - way
    head = np.array(federation.layout.views(federation.flat)["head.0.bias"])
    assert np.allclose(head, start["head.0.bias"].numpy() + way + way * (1 - way), atol=1e-6)


def test_a_loss_that_reads_state_keeps_what_every_method_promises() -> None:
    assert Pulled.reads_table
    assert Pulled.has_hooks()
    check_method(Pulled())


class Told(FedAvg):
    """What a client knows of its training after it."""

    name: Literal["told"] = "told"  # type: ignore[assignment]
    seen: ClassVar[list[Local]] = []

    def after_update(self, local: Local) -> tuple[State, State]:
        self.seen.append(local)
        return {}, {}


def test_hooks_know_the_steps_and_the_mean_terms_of_a_local_update() -> None:
    Told.seen.clear()
    experiment = configured("fedavg").model_copy(update={"method": Told()})
    federation = tiny.federation(experiment, tiny.TWO)
    records = list(federation.run())
    assert [local.steps for local in Told.seen] == [EPOCHS] * 2 * len(records)
    found = [local.terms for local in Told.seen[-2:]]
    n_k = [local.samples for local in Told.seen[-2:]]
    assert np.average([terms["ce"] for terms in found], weights=n_k) == pytest.approx(records[-1].metrics["loss_ce"])
    assert found[0]["ce"] != found[1]["ce"]


def test_terms_are_not_told_where_the_gradients_of_texts_have_noise() -> None:
    Told.seen.clear()
    experiment = configured("fedavg", training={"rounds": 1, "dp_sgd": {"clip_norm": 1.0, "multiplier": 1.0}})
    list(tiny.federation(experiment.model_copy(update={"method": Told()}), tiny.TWO).run())
    assert [local.terms for local in Told.seen] == [{}, {}]


class Sharp(FedAvg):
    """Sharpness-aware steps: along the gradient a little further up."""

    name: Literal["sharp"] = "sharp"  # type: ignore[assignment]
    derivatives: ClassVar[Literal[0, 1, 2]] = 1
    graph: ClassVar[bool] = False
    language = False
    examplewise = False

    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        def ce(parameters: Mapping[str, Tensor]) -> Tensor:
            return cross_entropy(Model(model.network, parameters)(batch), batch.labels_B)

        names, leaves = list(model.parameters), list(model.parameters.values())
        slopes = torch.autograd.grad(ce(model.parameters), leaves, create_graph=self.graph)
        return {"ce": ce({n: p + 0.1 * slope for n, p, slope in zip(names, leaves, slopes, strict=True)})}


class Twice(Sharp):
    """The same with the gradient of that gradient."""

    name: Literal["twice"] = "twice"  # type: ignore[assignment]
    derivatives = 2
    graph = True


class Silent(Sharp):
    """It does not state its derivatives."""

    name: Literal["silent"] = "silent"  # type: ignore[assignment]
    derivatives = 0


@pytest.mark.parametrize("method", [Sharp(), Twice()])
def test_a_loss_that_takes_gradients_keeps_what_every_method_promises(method: Method) -> None:
    check_method(method)


def test_a_loss_that_does_not_state_its_derivatives_is_found() -> None:
    with pytest.raises(AssertionError, match="a loss that takes gradients itself states its derivatives"):
        check_method(Silent())


def test_second_derivatives_are_taken_by_the_reference_engine() -> None:
    assert with_method(Twice()).engine == "reference"
    assert with_method(Sharp()).engine == "native"
    asked = with_method(Twice(), training=tiny.TRAINING | {"engine": "native"})
    assert list(problems(asked)) == [
        "training.engine: the loss of method twice takes second derivatives, which native does not have: leave engine "
        "at auto"
    ]


def test_language_models_have_no_second_derivatives() -> None:
    assert not tiny.language_model().model.second_order
    assert not tiny.language_model(model={"name": "causal", "attention": "eager"}).model.second_order


def test_attention_without_second_derivatives_is_refused_before_training() -> None:
    model = {"name": "transformer", "embedding": {"dim": 4}, "layers": 1, "heads": 2, "intermediate": 4}
    assert not list(problems(with_method(Twice(), model=model | {"attention": "eager"})))
    for given in (model, {"name": "bag"}, {"name": "logistic"}, {"name": "vectors"}):
        assert list(problems(with_method(Twice(), model=given))) == [
            f"model: the loss of method twice takes second derivatives, which this {given['name']} does not have: "
            "use a recurrent classifier, or a transformer with attention: eager"
        ]
        assert not list(problems(with_method(Sharp(), model=given)))


@pytest.mark.parametrize("method", [Sharp(), Twice()])
def test_clients_whose_loss_takes_gradients_are_trained_one_by_one(method: Method) -> None:
    assert stack_size(with_method(method), 1000) == (
        *(1, f"clients one by one: the loss of method {method.name} takes gradients of one client"),
    )
    stacked = with_method(method, training=tiny.TRAINING | {"stack": 2})
    assert any(f"the loss of method {method.name} takes gradients of one client" in each for each in problems(stacked))


@pytest.mark.parametrize(
    ("method", "why"), [(Pulled(), "of each client's state"), (Twice(), "that takes gradients itself")]
)
def test_audits_that_match_gradients_refuse_such_a_loss(method: Method, why: str) -> None:
    asked = with_method(method, audits=["gradient_inversion"])
    assert any(f"method {method.name} has a loss {why}" in each for each in problems(asked))
