"""RR-LDP as an experiment: batches that follow from a client's texts, the files, and other methods under it."""

from typing import Any

import pytest
import yaml

from fedtext.accounting import composition
from fedtext.config import files
from fedtext.config.files import load
from fedtext.config.overrides import override
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.ledger import ledger
from fedtext.parameters import initial
from fedtext.training.config import Training
from tests import tiny
from tests.loops import nonempty
from tests.tiny import Finished, Recording
from tune_spaces.cases import cases

DENSE = 506_451  # numbers of the paper's network at 5,000 buckets
DEMO = "corpus={name: demo, clients: 3, train: 40, test: 20, validation: 0.25, text: {hash: {buckets: 300}}}"


def stepwise(size: Any) -> dict[str, Any]:
    return tiny.TRAINING | {"batch_size": size}


@pytest.mark.parametrize(("texts", "size"), [(250, 50), (225, 45), (26, 6), (16, 4), (6, 2), (5, 1), (3, 1)])
def test_a_batch_is_what_makes_so_many_steps_of_the_texts(texts: int, size: int) -> None:
    assert Training.model_validate({"batch_size": {"steps": 5}}).batch(texts) == size
    assert -(-texts // size) <= 5, "at most"
    assert Training(batch_size=7).batch(texts) == 7


def test_each_client_trains_as_with_the_number_that_follows_from_its_texts() -> None:
    corpus = tiny.corpus()
    sizes = [len(client.train) // 3 for client in corpus.clients]
    assert sizes == [4, 5, 6]
    sent = {}
    for size in ({"steps": 3}, *sizes):
        experiment = tiny.experiment(training=stepwise(size) | {"rounds": 1, "stack": 1})
        federation = tiny.federation(experiment, corpus, Recording)
        fleet = federation.fleet
        list(federation.run())
        sent[str(size)] = [reply.payload.tobytes() for reply in fleet.received]
    assert sent.pop(str({"steps": 3})) == [sent[str(size)][client] for client, size in enumerate(sizes)]
    assert len({payloads[0] for payloads in sent.values()}) == 3


def test_fine_tuning_has_as_many_steps_as_with_the_number() -> None:
    alone = tiny.corpus(clients=1)
    by_steps, by_number = (
        Finished("kteps", alone, training=stepwise(size), evaluation={"personalize": {"steps": 9}})
        for size in ({"steps": 3}, 4)
    )
    assert by_steps.rows[-1].clients == by_number.rows[-1].clients
    assert "Ap" in by_steps.rows[-1].clients["client0"]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "training.batch_size: should be greater than 0"),
        ({"steps": 0}, "batch_size.steps: should be greater than or equal to 1"),
        ({"step": 5}, "there is no key training.batch_size.step; did you mean steps?"),
        ({"steps": None}, "batch_size.steps: should be a valid integer"),
    ],
)
def test_a_batch_size_that_is_none_is_refused(size: Any, words: str) -> None:
    content = tiny.experiment().model_dump(mode="json") | {"training": {"batch_size": size}}
    with pytest.raises(UserError, match=words.replace("?", r"\?")):
        files.validate(content)


def test_batches_of_one_client_each_are_not_counted_by_steps() -> None:
    tiny.experiment("asp_mtl", training=stepwise(5))
    with pytest.raises(ValueError, match=r"training\.batch_size: method asp_mtl makes batches of one client's texts"):
        tiny.experiment("asp_mtl", training=stepwise({"steps": 5}))


def test_a_batch_size_by_steps_reads_back_and_gives_way_to_a_number() -> None:
    experiment = tiny.experiment(training=stepwise({"steps": 3}))
    content = yaml.safe_load(files.resolved(experiment))
    assert files.validate(content) == experiment
    assert files.validate(override(content, {"training.batch_size": 16})).training.batch_size == 16


def test_the_papers_sweep_is_whole_and_every_number_of_clients_makes_five_steps() -> None:
    made = cases(*load("rrldp.yaml"), "rrldp.yaml")
    baseline, *trials = (case.experiment for case in made)
    assert baseline.method.pooled
    points = {
        (e.uplink[1].epsilon, e.uplink[0].q, e.corpus.clients)  # type: ignore[attr-defined]
        for e in trials
    }
    assert len(points) == len(trials) == 48
    assert [sorted(set(axis)) for axis in zip(*points, strict=True)] == [
        [0.1, 1.0, 10.0],
        [1e-5, 1e-4, 1e-3, 1e-2],
        [10, 50, 100, 250],
    ]
    for experiment in nonempty(trials):
        texts = round(25_000 / experiment.corpus.clients * (1 - experiment.corpus.validation))  # type: ignore[attr-defined]
        assert -(-texts // experiment.training.batch(texts)) == 5
    assert {experiment.training.rounds for experiment in trials} == {25}


def test_the_central_sweep_spends_what_it_says() -> None:
    pytest.importorskip("dp_accounting")
    made = cases(*load("rrldp_central.yaml"), "rrldp_central.yaml")
    for experiment in nonempty(case.experiment for case in made if not case.baseline):
        clients, noise = experiment.corpus.clients, experiment.server.noise  # type: ignore[attr-defined]
        assert noise is not None
        (spent,) = [e.epsilon for e in ledger(experiment, DENSE, clients, 25) if e.unit == "run"]
        assert spent is not None
        assert noise.target_epsilon is not None
        assert 0.99 * noise.target_epsilon < spent <= noise.target_epsilon


def test_shuffled_bits_of_a_thousand_clients_have_an_epsilon_below_ten() -> None:
    _, experiment = load("rrldp_shuffled.yaml")
    numbers = 2_000 + 1 + 1 + 1  # an entry for each bucket and one for <pad>, and a linear layer of one output
    (entry,) = [e for e in ledger(experiment, numbers, 1000, 25) if e.mechanism == "wire.shuffle"]
    assert entry.epsilon is not None
    assert 9 < entry.epsilon < 10


@pytest.mark.parametrize("method", ["fedavg", "kteps"])
def test_a_method_runs_under_rr_ldp_by_its_name_alone(method: str) -> None:
    """The file as it stands on another corpus: a bit is sent for each shared number, private ones stay and differ."""
    _, experiment = load("rrldp.yaml", [f"method={method}", DEMO, "training.rounds=2", "evaluation.every=1"])
    corpus = prepare(experiment.corpus, experiment.model.embedding, experiment.seed, None)
    shared = initial(experiment, corpus)[0]
    federation = tiny.federation(experiment, corpus, Recording)
    fleet = federation.fleet
    rows = list(federation.run())
    numbers = sum(tensor.size for tensor in shared.values())
    for reply in nonempty(fleet.received):
        assert numbers / 8 <= len(reply.payload) < numbers / 8 + 2_000, "one bit for each number, and names"
    assert rows[-1].metrics["epsilon"] == composition.optimal(1.0, 2 * numbers, 1e-5)
    assert {"AUC", "AUC_val"} <= rows[-1].metrics.keys()
    kept = [fleet.worker.private.get(client, {}) for client in range(3)]
    assert [bool(own) for own in kept] == [method == "kteps"] * 3
    assert not {name for own in kept for name in own} & set(shared)
    if method == "kteps":
        assert len({own["head_private.0.weight"].tobytes() for own in kept}) == 3
