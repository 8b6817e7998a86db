"""Networks that clients cannot train are refused in a run and by the conformance checks, with the same sentence."""

from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedtext.errors import NetworkError
from fedtext.methods import FedAvg
from fedtext.models.parts import Parts
from fedtext.models.trainable import constant_buffers
from fedtext.parameters import shared_numbers
from fedtext.server.trained import trained
from fedtext.testing import check_method, check_model
from tests import tiny
from tests.fedtext.client.hosting import hosting
from tests.fedtext.models.networks import Layers, TiedByHand
from tests.loops import nonempty

PARAMETERS = {
    "frozen": "parameter encoder.scale has requires_grad=False, which clients would train .* let fixes of the model's",
    "numbers": "parameter encoder.scale has the type torch.int64, .*: make it a buffer",
    "whole": "parameter encoder.scale has the type torch.int64, .*: make it a buffer",
}
BUFFERS = {
    "normed": "^BatchNorm1d encoder.norm changes its buffer running_mean while it is trained, .* such as LayerNorm",
    "instances": "^InstanceNorm1d encoder.norm changes its buffer running_mean",
    "replacing": "^Encoder encoder changes its buffer scale",
}


def with_model(kind: Any, **sections: Any) -> Any:
    return tiny.experiment(**sections).model_copy(update={"model": Layers(kind=kind)})


class Normed(FedAvg):
    """FedAvg with normalised features."""

    name: Literal["normed"] = "normed"  # type: ignore[assignment]

    def network(self, parts: Parts) -> nn.Module:
        network = super().network(parts)
        network.head.insert(0, nn.BatchNorm1d(parts.features))
        return network


class Frozen(FedAvg):
    """FedAvg that does not want its head to be trained."""

    name: Literal["frozen"] = "frozen"  # type: ignore[assignment]

    def network(self, parts: Parts) -> nn.Module:
        network = super().network(parts)
        network.head.requires_grad_(requires_grad=False)
        return network


@pytest.mark.parametrize("kind", PARAMETERS)
def test_parameters_that_cannot_be_trained_are_refused(kind: str) -> None:
    with pytest.raises(AssertionError, match=PARAMETERS[kind]):
        check_model(Layers(kind=kind))  # type: ignore[arg-type]
    made = with_model(kind)
    with pytest.raises(NetworkError, match=PARAMETERS[kind]):
        hosting(made)  # before the first round
    with pytest.raises(NetworkError, match=PARAMETERS[kind]):
        shared_numbers(made, 2, 3, 20)  # in a plan


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_that_training_changes_are_refused(kind: str) -> None:
    with pytest.raises(AssertionError, match=BUFFERS[kind]):
        check_model(Layers(kind=kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_run_refuses_them_in_its_first_round(policy: str) -> None:
    """Whatever is asked for clients that fail: none would do better."""
    federation = tiny.federation(with_model("normed", participation={"on_client_error": policy}))
    with pytest.raises(NetworkError, match=BUFFERS["normed"]):
        list(federation.run())
    assert not federation.history


def test_networks_of_methods_are_refused_as_well() -> None:
    with pytest.raises(AssertionError, match=r"^parameter head.0.weight has requires_grad=False"):
        check_method(Frozen())
    with pytest.raises(AssertionError, match=r"^BatchNorm1d head.0 changes its buffer running_mean"):
        check_method(Normed())


def test_a_stack_of_clients_is_refused_with_the_sentence_of_one() -> None:
    training = tiny.TRAINING | {"engine": "cells", "stack": 2}
    made = tiny.experiment(training=training).model_copy(update={"method": Normed()})
    worker, flat = hosting(made)
    for reply in nonempty(worker.train(flat, 1, [0, 1])):
        assert reply.unfit
        assert reply.error.startswith("BatchNorm1d head.0 changes its buffer running_mean")


def test_a_parameter_that_the_model_fixes_stays_as_it_is() -> None:
    check_model(Layers(kind="fixed"))
    federation = tiny.federation(with_model("fixed"))
    list(federation.run())
    assert "encoder.scale" not in federation.state
    assert (trained(federation, tiny.TWO).shared["encoder.scale"] == 2).all()


def test_a_model_that_fixes_every_parameter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Layers, "fixes", lambda self, parameter: True)
    with pytest.raises(NetworkError, match="fixes every parameter, so that clients have nothing to train"):
        hosting(with_model("fixed"))
    with pytest.raises(AssertionError, match="fixes every parameter"):
        check_model(Layers(kind="fixed"))


def test_buffers_are_compared_until_a_network_has_been_trained_once() -> None:
    network = nn.BatchNorm1d(2)
    network.eval()
    with constant_buffers(network):
        network(torch.randn(3, 2))
    network.train()
    with constant_buffers(network):  # not compared again
        network(torch.randn(3, 2))
    again = nn.BatchNorm1d(2)
    for _ in range(2):
        with pytest.raises(NetworkError), constant_buffers(again):
            again(torch.randn(3, 2))


@pytest.mark.parametrize("size", [3, 10_000])
def test_a_change_of_any_element_is_noticed(size: int) -> None:
    network = nn.Module()
    network.register_buffer("values", torch.full((size,), torch.nan))
    network.register_buffer("none", None)
    with pytest.raises(NetworkError, match=r"^Module changes its buffer values"), constant_buffers(network):
        network.values[-1] = 1
    with constant_buffers(network):
        network.values.sum()


def test_a_table_comes_before_what_shares_it() -> None:
    made = tiny.language_model()
    keys = made.model.model_dump() | {"tied": False, "name": "tied_by_hand", "table_last": True}
    made = made.model_copy(update={"model": TiedByHand(**keys)})
    with pytest.raises(NetworkError, match=r"head.weight is the embedding table embedding.weight, .* embedding first$"):
        shared_numbers(made, 23, 2, 24)


def test_a_parameter_of_another_precision_is_trained_in_float32() -> None:
    federation = tiny.federation(with_model("half"))
    list(federation.run())
    assert federation.state["encoder.scale"].dtype == np.float32
    assert (federation.state["encoder.scale"] != 1).any()
