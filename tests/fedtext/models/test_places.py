"""Networks that have a parameter in several places."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

import fedtext
from fedtext.methods import FedAvg
from fedtext.methods.base import Batch, Model
from fedtext.models.parts import Parts, whole
from fedtext.models.places import places_of
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.state.fingerprint import fingerprint, released
from fedtext.testing import check_model
from fedtext.testing.epochs import Client, epoch
from fedtext.training.config import SGD
from tests import tiny
from tests.fedtext.models import networks
from tests.fedtext.models.networks import Layers
from tests.loops import nonempty

BATCH = Batch(torch.tensor([[1, 4, 2], [3, 0, 0], [5, 6, 0]]), torch.tensor([3, 1, 2]), torch.tensor([0, 1, 1]))


class Twice(FedAvg):
    """FedAvg with a head whose two inner layers are one."""

    name: Literal["twice"] = "twice"  # type: ignore[assignment]

    def network(self, parts: Parts) -> nn.Module:
        network = super().network(parts)
        network.head[4].weight = network.head[2].weight
        return network


def test_a_weight_that_layers_share_is_the_same_in_each_as_in_functional_call() -> None:
    torch.manual_seed(0)
    network = whole(Parts(Layers(kind="tied"), 2))
    own = {name: tensor.clone() for name, tensor in network.named_parameters(remove_duplicate=False)}
    drawn = {name: torch.randn_like(tensor) for name, tensor in network.named_parameters()}
    drawn["embedding.weight"] = torch.randn(7, 4)
    assert "encoder.second.weight" not in drawn
    assert places_of(network).tied == {"encoder.second.weight": "encoder.first.weight"}
    results = []
    for call in (Model(network, drawn), lambda batch: functional_call(network, drawn, (batch,))):
        for tensor in drawn.values():
            tensor.requires_grad_()
        logits_BC = call(BATCH)
        results.append([logits_BC, *torch.autograd.grad(logits_BC.square().sum(), list(drawn.values()))])
    assert all(nonempty(torch.equal(*pair) for pair in zip(*results, strict=True)))
    kept = dict(network.named_parameters(remove_duplicate=False))
    assert kept["encoder.second.weight"] is kept["encoder.first.weight"]
    assert all(nonempty(torch.equal(kept[name], tensor) for name, tensor in own.items()))


def test_other_networks_are_given_their_parameters_as_they_are() -> None:
    network = whole(Parts(Layers(), 2))
    drawn = dict(network.named_parameters())
    assert places_of(network).everywhere(drawn) is drawn
    assert nn.Linear(2, 2, bias=False)._parameters.keys() == places_of(nn.Linear(2, 2, bias=False)).of.keys()


def test_a_run_trains_saves_and_predicts_with_what_layers_share(tmp_path: Path) -> None:
    model = {"name": "layers", "kind": "tied"}
    plugin = str(Path(networks.__file__))
    asked = {"name": "tied", "corpus": "demo", "method": "fedavg", "model": model, "plugins": [plugin]}
    keys = ("corpus.clients=2", "training.rounds=1", "evaluation.personalize=null")
    result = fedtext.run(asked, *keys)
    assert "encoder.second.weight" not in result.state
    result.save(tmp_path / "model")
    for made in nonempty((result.model, fedtext.Model.load(tmp_path / "model", trust_plugins=True))):
        encoder = made._bind(None).model.network.encoder
        assert encoder.second.weight is encoder.first.weight
        assert np.array_equal(encoder.first.weight, result.state["encoder.first.weight"])


def test_models_with_shared_weights_keep_what_is_promised() -> None:
    check_model(Layers(kind="tied"))


@pytest.mark.parametrize("engine", ["reference", "cells", "native"])
def test_an_output_layer_that_is_the_table_is_as_one_that_is_tied_by_its_key(engine: str) -> None:
    federations = []
    for own in (False, True):
        made = tiny.language_model(training=tiny.TRAINING | {"engine": engine, "rounds": 1})
        keys = made.model.model_dump() | {"tied": False, "name": "tied_by_hand"}
        made = made.model_copy(update={"model": networks.TiedByHand(**keys)}) if own else made
        federations.append(tiny.federation(made, tiny.language_corpus(2)))
        list(federations[-1].run())
    tied, by_hand = federations
    assert tied.state.keys() == by_hand.state.keys()
    assert np.array_equal(tied.flat, by_hand.flat)


@pytest.mark.parametrize("engine", ["cells", "native"])
def test_engines_add_the_gradients_of_all_places(engine: str) -> None:
    config = RecurrentClassifier.model_validate({"embedding": {"dim": 4}, "hidden": 6, "head": {"hidden": [6, 6, 6]}})
    client = Client(tiny.token_set(np.random.default_rng(0), 17, 1, 30, 6), 30)
    got, expected = (epoch(each, Twice(), config, [client], SGD(lr=0.05))[0] for each in (engine, "reference"))
    assert "head.4.weight" not in got.after
    for name, tensor in nonempty(expected.after.items()):
        assert torch.allclose(got.after[name], tensor, rtol=1e-9, atol=1e-9), name


def test_runs_of_such_networks_of_earlier_versions_are_not_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in nonempty(("tied", "plain")):
        made = tiny.experiment().model_copy(update={"model": Layers(kind=kind)})
        now = fingerprint(made, "content", 3), released(made, "content", 3)
        with monkeypatch.context() as before:
            before.setattr("fedtext.state.versions._tied", lambda *_: False)
            then = fingerprint(made, "content", 3), released(made, "content", 3)
        assert all(one != other for one, other in zip(now, then, strict=True)) == (kind == "tied")
        assert (now == then) == (kind == "plain")
