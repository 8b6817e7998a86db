"""DP-SGD: steps along noised sums of the clipped gradients of single texts, against a plain loop."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedtext.accounting import composition
from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.ledger import ledger, spent
from fedtext.ledger.examples import example_multiplier
from fedtext.ledger.report import guarantees
from fedtext.methods import METHODS
from fedtext.methods.base import Method, Model
from fedtext.methods.fedavg import FedAvg
from fedtext.parameters import initial
from fedtext.state.fingerprint import fixed_length, released
from fedtext.training.examples import ExampleNoise
from fedtext.wire.decoder import Decoder
from tests import tiny
from tests.loops import nonempty
from tests.sampled import slow_but

CORPUS = tiny.corpus(clients=2)
QUIET = 1e-9  # a noise multiplier that changes nothing that is compared here
STEPS = {"rounds": 2, "local_epochs": 2, "batch_size": 5, "optimizer": {"lr": 0.3, "momentum": 0}}
MODELS: dict[str, Any] = {
    "gru": {"embedding": {"dim": 5}, "hidden": 4, "head": {"hidden": 3}},
    "bag": {"name": "bag", "embedding": {"dim": 5}, "hidden": [4]},
    "transformer": {
        "name": "transformer",
        "embedding": {"dim": 8},
        "layers": 1,
        "heads": 2,
        "dropout": 0.0,
        "intermediate": 8,
    },
}
BY_TEXT = [name for name, cls in METHODS.items() if cls.by_text() and cls.shares and not cls.pooled]
ONE_PHASE = [name for name in BY_TEXT if len(METHODS[name]().phases(2)) == 1]


def training(clip_norm: float = 1.0, multiplier: float = QUIET, **keys: Any) -> dict[str, Any]:
    return STEPS | keys | {"dp_sgd": {"clip_norm": clip_norm, "multiplier": multiplier}}


def updated(experiment: Any, client: int = 0, round_: int = 1) -> tuple[Any, Any]:
    """A client's update, and its fleet."""
    shared, private = initial(experiment, CORPUS)
    layout = Layout({name: tensor.shape for name, tensor in shared.items()})
    fleet = LocalFleet(experiment, CORPUS, private)
    (reply,) = fleet.worker.train(layout.pack(shared), round_, [client])
    assert not reply.error, reply.error
    return Decoder(experiment, layout).update(reply.payload, client, layout.pack(shared), round_), fleet


@pytest.mark.parametrize("name", list(MODELS))
def test_an_update_is_that_of_a_plain_loop(name: str) -> None:
    """Each text's gradient by torch alone, clipped to 0.05 over all parameters together, of which most are longer."""
    experiment = tiny.experiment(model=MODELS[name], training=training(0.05))
    found, fleet = updated(experiment)
    worker, (shared, _) = fleet.worker, initial(experiment, CORPUS)
    values = {key: torch.tensor(tensor) for key, tensor in shared.items()}
    before, lengths = {key: tensor.clone() for key, tensor in values.items()}, []
    (phase,) = worker.method.phases(2)
    (work,) = worker.work(phase, [0], 1)
    worker.network.train()
    for batch in nonempty(work.batches):
        total = {key: torch.zeros_like(tensor) for key, tensor in values.items()}
        for place in batch:
            text, _ = worker.training.single(work.texts, np.array([place]))
            leaves = {key: tensor.clone().requires_grad_() for key, tensor in values.items()}
            cross_entropy(Model(worker.network, leaves)(text), text.labels_B).backward()
            length = math.sqrt(sum(float(leaf.grad.square().sum()) for leaf in leaves.values()))  # type: ignore[union-attr]
            lengths.append(length)
            for key, leaf in leaves.items():
                total[key] += leaf.grad * min(1.0, 0.05 / length)
        for key in values:
            values[key] = values[key] - 0.3 * total[key] / len(batch)
    assert np.mean(np.array(lengths) > 0.05) > 0.5
    for key, tensor in nonempty(found.tensors.items()):
        assert np.allclose(tensor, (values[key] - before[key]).numpy(), atol=2e-6), key


@pytest.mark.parametrize("method", slow_but(ONE_PHASE, "fedavg", "scaffold", "ditto"))
def test_without_clipping_and_noise_it_is_ordinary_training(method: str) -> None:
    """The mean of the gradients of single texts is that of the batch, for all methods that say so."""
    steps = {"batch_size": {"steps": 1}, "local_epochs": 1} if method == "fedsgd" else {}
    sections = [training(1e6, 1e-15, **steps), STEPS | steps]
    private, plain = (tiny.federation(tiny.experiment(method, training=each), CORPUS) for each in sections)
    records = list(private.run()), list(plain.run())
    assert np.allclose(private.flat, plain.flat, atol=2e-5)
    assert records[0][-1].metrics["loss"] == pytest.approx(records[1][-1].metrics["loss"], rel=1e-4)
    assert not np.allclose(private.flat, private.layout.pack(initial(private.experiment, CORPUS)[0]), atol=1e-3)


@pytest.mark.parametrize("engine", ["reference", "cells"])
def test_engines_agree(engine: str) -> None:
    found, _ = updated(tiny.experiment(training=training(0.05, 0.3, engine=engine)))
    other, _ = updated(tiny.experiment(training=training(0.05, 0.3, engine="native")))
    # another engine is another experiment, with noise of its own: it is compared without
    quiet = [updated(tiny.experiment(training=training(0.05, engine=each)))[0] for each in (engine, "native")]
    for name, tensor in nonempty(quiet[0].tensors.items()):
        assert np.allclose(tensor, quiet[1].tensors[name], atol=1e-5)
        assert not np.array_equal(found.tensors[name], other.tensors[name])


def test_noise_is_on_all_rows_also_of_words_that_a_client_does_not_have() -> None:
    """With gradients clipped to nothing, an update is noise: 6 steps of lr z C / B, the last of a smaller batch."""
    once = training(1e-3, 1e4, local_epochs=1)
    update, fleet = updated(tiny.experiment(training=once))
    assert update.rows is None
    client = CORPUS.clients[0]
    texts, held = len(client.train), set(client.rows_R.tolist())
    sizes = [5] * (texts // 5) + ([texts % 5] if texts % 5 else [])
    expected = 0.3 * 1e4 * 1e-3 * math.sqrt(sum(size**-2 for size in sizes))
    table = update.tensors[TABLE]
    others = np.array([row for row in range(len(table)) if row not in held])
    assert len(others) > 5
    for rows in nonempty((others, sorted(held))):
        assert table[rows].std() == pytest.approx(expected, rel=0.25)
    everything = np.concatenate([tensor.reshape(-1) for tensor in update.tensors.values()])
    assert everything.std() == pytest.approx(expected, rel=0.1)
    assert not fleet.worker.experiment.own_rows


def test_clients_and_rounds_have_noise_of_their_own_and_a_run_the_same_again() -> None:
    experiment = tiny.experiment(training=training(1e-3, 1e4))
    sent = [updated(experiment, *which)[0].tensors["head.0.weight"] for which in ((0, 1), (1, 1), (0, 2), (0, 1))]
    assert np.array_equal(sent[0], sent[3])
    for other in nonempty(sent[1:3]):
        assert abs(np.corrcoef(sent[0].ravel(), other.ravel())[0, 1]) < 0.9
        assert not np.isclose(sent[0], other).any()


def test_a_sum_of_clipped_gradients_by_hand() -> None:
    made = ExampleNoise(2.0, 0.5, np.random.default_rng(1))
    total = made.add(None, [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])])  # of length 5
    total = made.add(total, [torch.tensor([0.0, 1.0]), torch.tensor([[0.0]])])  # of length 1
    total = made.add(total, [torch.zeros(2), torch.zeros(1, 1)])
    assert torch.allclose(total[0], torch.tensor([1.2, 1.0]))
    assert torch.allclose(total[1], torch.tensor([[1.6]]))
    drawn = np.random.default_rng(1)
    first, second = drawn.standard_normal(2), drawn.standard_normal((1, 1))
    noised = made.noised(total, 3)
    assert np.allclose(noised[0].numpy(), (np.array([1.2, 1.0]) + 2.0 * 0.5 * first) / 3)
    assert np.allclose(noised[1].numpy(), (1.6 + second) / 3)
    with pytest.raises(UserError, match="the gradient of a text is not finite"):
        made.add(None, [torch.tensor([math.inf])])


def test_a_loss_of_its_own_has_to_say_that_it_is_of_single_texts() -> None:
    class Other(FedAvg):
        def loss(self, model: Any, received: Any, batch: Any) -> Any:
            return super().loss(model, received, batch)

    class Said(Other):
        examplewise = True

    class Below(Said):
        pass

    assert [each.by_text() for each in (FedAvg, Other, Said, Below, Method)] == [True, False, True, True, False]
    assert not METHODS["kteps"].by_text()
    assert METHODS["scaffold"].by_text()


def test_the_ledger_states_the_guarantee_of_a_text_beside_that_of_a_client() -> None:
    pytest.importorskip("dp_accounting")
    experiment = tiny.experiment(training=training(multiplier=2.0))
    client, text = ledger(experiment, 100, 2, 2)
    assert client.epsilon is None
    assert "updates are sent as they are" in client.how
    assert (text.mechanism, text.unit, text.delta) == ("training.dp_sgd", "text", 1e-5)
    assert text.epsilon == pytest.approx(composition.gaussian(2.0, 2 * 2, 1e-5))
    assert "in 4 batches with the text: 2 rounds of 2 epochs, in any order" in text.how
    assert "the server among them" in text.assumptions
    assert spent([client, text]) == {"epsilon_text": text.epsilon}
    assert "for each text in the whole run" in " ".join(guarantees([text]))
    apart = tiny.experiment(
        training=training(multiplier=2.0) | {"rounds": 10}, participation={"fraction": 0.5, "sampling": "epochs"}
    )
    assert ledger(apart, 100, 2, 10)[1].epsilon == pytest.approx(composition.gaussian(2.0, 5 * 2, 1e-5))
    central = {"weights": "uniform", "noise": {"multiplier": 1.0}}
    both = ledger(tiny.experiment(training=training(multiplier=2.0), uplink=["clip"], server=central), 100, 2, 2)
    assert spent(both).keys() == {"epsilon", "delta", "epsilon_text"}


def test_a_target_is_met_and_belongs_to_its_rounds() -> None:
    pytest.importorskip("dp_accounting")
    asked = STEPS | {"dp_sgd": {"target_epsilon": 3.0}}
    experiment = tiny.experiment(training=asked)
    assert 2.99 < spent(ledger(experiment, 100, 2, 2))["epsilon_text"] <= 3.0
    assert example_multiplier(experiment) == composition.multiplier_for(3.0, 1.0, 4, 1e-5)
    assert "training.dp_sgd.target_epsilon is spent over the rounds" in fixed_length(experiment)
    digests = {
        released(tiny.experiment(training=each), "content", 2)
        for each in (STEPS, asked, asked | {"rounds": 3}, training(), training(multiplier=1.0), training(2.0))
    }
    assert len(digests) == 6
    assert fixed_length(tiny.experiment(training=training())) == ""


def test_a_run_has_the_metric_of_a_text() -> None:
    pytest.importorskip("dp_accounting")
    federation = tiny.federation(tiny.experiment(training=training(multiplier=2.0)), CORPUS)
    first, second = federation.run()
    assert first.metrics["epsilon_text"] == pytest.approx(composition.gaussian(2.0, 2, 1e-5))
    assert second.metrics["epsilon_text"] == pytest.approx(composition.gaussian(2.0, 4, 1e-5))
    assert "epsilon" not in second.metrics


def test_language_models_are_trained_by_sentences() -> None:
    texts = tiny.language_corpus(clients=2)
    experiment = tiny.language_model(training=training(0.5, 0.1))
    federation = tiny.federation(experiment, texts)
    records = list(federation.run())
    assert np.isfinite(federation.flat).all()
    assert records[-1].metrics["epsilon_text"] > 0
