"""Clients computed on a device that is not the CPU: the same results, and nobody waits for it in between."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.worker import Worker
from fedtext.config.engine import with_engine
from fedtext.evaluation import classes, words
from fedtext.layout import Layout
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.parameters import initial
from tests import tiny
from tests.elsewhere import DEVICE, Elsewhere
from tests.fedtext.models.networks import FixedLayers
from tests.fedtext.models.test_models import METHODS, MODELS, named
from tests.sampled import slow_but

BIGRU: dict[str, Any] = {"name": "bigru", "embedding": {"dim": 5}, "hidden": 4, "head": {"hidden": 3}}
TRAINING = tiny.TRAINING | {"local_epochs": 1}  # each operation takes a millisecond elsewhere
TWO_ROUNDS = TRAINING | {"rounds": 2}
CORPUS = tiny.corpus(2, 7)
READ = {"personalize": {"steps": 2}, "union": {"texts": 5}}


def on_any(experiment: Any) -> Any:
    """The experiment with an engine for all devices."""
    return with_engine(experiment, "cells") if experiment.engine == "native" else experiment


def run(experiment: Any, corpus: Any, device: str) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The last parameters of all rounds, and what was read in them."""
    experiment = on_any(experiment)
    federation = tiny.federation(experiment, corpus, partial(LocalFleet, device=device))
    rows = list(federation.run())
    return federation.flat, [{k: v for k, v in record.metrics.items() if "seconds" not in k} for record in rows]


def check(experiment: Any, corpus: Any, exactly: bool = True) -> None:
    expected, expected_rows = run(experiment, corpus, "cpu")
    with Elsewhere():
        got, rows = run(experiment, corpus, DEVICE)
    if exactly:
        assert np.array_equal(got, expected)
        assert rows == expected_rows
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method", slow_but(METHODS, "fedavg", "kteps", "asp_mtl", "scaffold"))
def test_every_method_comes_to_the_same_elsewhere(method: str) -> None:
    """Two side by side, and one alone, where the method can do so."""
    stack = "auto" if tiny.experiment(method).reads_table else 2
    training = TWO_ROUNDS | {"stack": stack}
    check(tiny.experiment(method, model=BIGRU, evaluation=READ, training=training), tiny.corpus(3, 7))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=named)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_every_model_comes_to_the_same_elsewhere(model: dict[str, Any], optimizer: str) -> None:
    training = TWO_ROUNDS | {"optimizer": {"name": optimizer, "lr": 0.01}}
    check(tiny.experiment("fedprox", model=model, evaluation=READ, training=training), CORPUS)


@pytest.mark.parametrize("tied", [True, False])
def test_a_language_model_comes_to_the_same_elsewhere(tied: bool) -> None:
    check(tiny.language_model("fedatt", tied), tiny.language_corpus())


# Adapted layers of GPT-2 are made with torch's device meta, which is the GPU here.
@pytest.mark.parametrize(
    ("architecture", "adapter"), [("gpt2", None), ("llama", None), ("llama", {"lora": {"rank": 2, "blocks": 1}})]
)
def test_a_causal_language_model_comes_to_the_same_elsewhere(architecture: str, adapter: Any) -> None:
    sizes = {"embedding": {"dim": 8}, "layers": 2, "heads": 2, "positions": 100, "dropout": 0.0}
    model = {"name": "causal", "architecture": architecture, "adapter": adapter} | sizes
    check(tiny.language_model("fedavg", model=model), tiny.language_corpus(), exactly=False)


def test_a_transformer_that_attends_eagerly_comes_to_the_same_elsewhere() -> None:
    check(tiny.experiment(model=MODELS[-1] | {"attention": "eager"}, training=TRAINING), CORPUS)


OWN = BIGRU | {"embedding": {"dim": 5, "own": {"words": "all"}}}
EACH = BIGRU | {"embedding": {"dim": 5, "init": {"each": {"sources": [{"random": {"std": s}} for s in (0.1, 0.2)]}}}}


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedavg", {"audits": [{"word_relations": {"words": ["w2", "w3"]}}, "label_leakage"]}),
        ("fedavg", {"training": TRAINING | {"optimizer": {"lr": 0.1, "persist": True}, "stack": 2}}),
        ("fedavg", {"training": TRAINING | {"optimizer": {"name": "adam", "persist": True}}}),
        ("fedevocab", {"model": OWN, "evaluation": READ}),
        ("fedevocab", {"model": EACH, "evaluation": READ}),
    ],
)
def test_whatever_else_reads_or_keeps_parameters_comes_to_the_same(method: str, changes: dict[str, Any]) -> None:
    corpus = CORPUS
    if changes.get("model") is EACH:  # such tables come with the corpus
        drawn_SVD = np.random.default_rng(0).standard_normal((2, len(corpus.vocabulary), 5), np.float32)
        corpus = replace(corpus, table_VD=drawn_SVD)
    check(tiny.experiment(method, **({"model": BIGRU, "training": TRAINING} | changes)), corpus)


@pytest.mark.parametrize("experiment", [tiny.experiment, tiny.language_model])
def test_torchs_own_layers_do_too(experiment: Any) -> None:
    corpus = CORPUS if experiment is tiny.experiment else tiny.language_corpus()
    check(experiment(training=TRAINING | {"engine": "reference"}), corpus, exactly=False)


def waits(experiment: Any, corpus: Any, members: list[int]) -> tuple[int, int]:
    """How often a client's turn waits for the device, and reading its test texts, once all is in place."""
    experiment = on_any(experiment)
    shared, private = initial(experiment, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    with Elsewhere() as device:
        worker = Worker(experiment, corpus, corpus.clients, private, DEVICE)
        worker.train(flat, 1, members)
        found = []
        for turn in (worker.train, lambda *of: worker.evaluate(*of, final=True)):
            before = device.waits
            turn(flat, 2, members)
            found.append(device.waits - before)
    return found[0], found[1]


@pytest.mark.parametrize(
    "model", [BIGRU, *MODELS[:3], MODELS[-1], MODELS[-1] | {"attention": "eager"}, "gru_lm"], ids=named
)
def test_no_batch_waits_for_the_device(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs wait as often as one, and many batches that are read as often as few."""
    found, members = [], [0, 1] if model is BIGRU else [0]
    for epochs, size in ((1, 100), (3, 2)):
        for module in (classes, words):
            monkeypatch.setattr(module, "BATCH", size)
        training = tiny.TRAINING | {"local_epochs": epochs}
        if model == "gru_lm":
            found.append(waits(tiny.language_model(training=training), tiny.language_corpus(2, 10), [0]))
        else:
            experiment = tiny.experiment(model=model, training=training, evaluation={"personalize": None})
            found.append(waits(experiment, tiny.corpus(2), members))
    assert found[0] == found[1]
    assert 0 < found[0][0] <= 2 + 4 * len(members)


def test_what_never_changes_does_not_come_back_from_the_device() -> None:
    """A client's turn waits as often as with a model of which all moves, in a stack of two clients too."""
    experiment = tiny.experiment(model=BIGRU, training=TRAINING, evaluation={"personalize": None})
    for members in ([0], [0, 1]):
        found = [
            waits(experiment.model_copy(update={"model": kind.model_validate(BIGRU | {"name": name})}), CORPUS, members)
            for kind, name in ((RecurrentClassifier, "gru"), (FixedLayers, "fixed_layers"))
        ]
        assert found[0] == found[1]
    fixed = FixedLayers.model_validate(BIGRU | {"name": "fixed_layers"})
    check(experiment.model_copy(update={"model": fixed}), CORPUS)


def test_what_the_server_sends_goes_to_the_device_once_a_round() -> None:
    """Each call of an actor has an array of its own, over the same memory for as long as it is the same round."""
    experiment, corpus = on_any(tiny.experiment(evaluation={"personalize": None})), tiny.corpus(2)
    shared, private = initial(experiment, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    other = flat + np.float32(0.5)
    plain = Worker(experiment, corpus, corpus.clients, private)
    expected = [plain.train(sent, 1, [client])[0].payload for sent in (flat, other) for client in (0, 1)]
    with Elsewhere() as device:
        worker = Worker(experiment, corpus, corpus.clients, private, DEVICE)
        got, sends = [], []
        for sent in (flat, other):
            for client in (0, 1):
                before = device.sends
                got.append(worker.train(sent[:], 1, [client])[0].payload)
                sends.append(device.sends - before)
    assert all(map(np.array_equal, got, expected))
    assert sends == [1, 0, 1, 0]


def test_the_pretended_device_holds_code_to_what_holds_for_a_gpu() -> None:
    with Elsewhere() as device:
        there, here = torch.ones(3, device=DEVICE), torch.ones(3)
        with pytest.raises(RuntimeError, match="some tensors are on the CPU"):
            there + here
        assert (there + torch.tensor(1.0)).cpu().tolist() == [2, 2, 2]
        assert (device.reads, device.sends) == (1, 0)
        assert (here.to(DEVICE) + there).sum().item() == 6
        assert (device.reads, device.sends) == (2, 1)
        there[:2] += here.pin_memory().to(DEVICE, non_blocking=True)[:2]
        assert there.cpu().tolist() == [2, 2, 1]
        assert len(there.nonzero()) == 3
        assert (device.reads, device.sends) == (4, 1)
