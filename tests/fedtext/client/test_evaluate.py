"""Clients' models are evaluated on their own test texts and on those of all clients."""

import itertools
from typing import Any

import numpy as np
import pytest

from fedtext.client.texts import order_of
from fedtext.evaluation import Evaluated
from fedtext.evaluation.classes import Scored
from fedtext.methods.base import Phase
from fedtext.text.tokens import UNK_ID
from fedtext.training import local as local_training
from tests import tiny
from tests.fedtext.client.hosting import CORPUS, UNION, hosting
from tests.loops import nonempty


@pytest.mark.parametrize(("texts", "count"), [("all", 30), (7, 7), (30, 30), (31, 30)])
def test_the_union_has_all_texts_or_as_many_as_are_asked_for(texts: Any, count: int) -> None:
    worker, _ = hosting(tiny.experiment("lg_fedavg", evaluation={"personalize": None, "union": {"texts": texts}}))
    read, rows_U = worker.union_texts(1)
    assert worker.union is not None
    assert len(read) == len(worker.union.test) == count
    assert worker.union_texts(2)[0] is read, "texts that are the same for all are kept once"
    there_NT = np.arange(read.padded_NT.shape[1]) < read.lengths_N[:, None]
    words_NT = rows_U[read.padded_NT] + worker.rows.start
    found = [words_T[there_T].tolist() for words_T, there_T in zip(words_NT, there_NT, strict=True)]
    whole = iter([text for tests in CORPUS.tests for text in np.split(tests.tokens_T, tests.offsets[1:-1])])
    assert all(nonempty(any(text == each.tolist() for each in whole) for text in found)), "in their order"


def test_a_client_with_a_branch_of_its_own_is_evaluated_by_it_on_the_union() -> None:
    """Of methods that keep tasks apart a text's task says whose branch classifies it."""
    worker, _ = hosting(tiny.experiment("asp_mtl", evaluation=UNION))
    for client in (0, 2):
        texts, _ = worker.union_texts(client)
        assert texts.tasks_N.tolist() == [client] * 30


@pytest.mark.parametrize("model", [{"embedding": {"dim": 5}, "hidden": 4}, {"name": "bag", "embedding": {"dim": 5}}])
def test_a_clients_test_texts_in_the_words_of_all(model: dict[str, Any]) -> None:
    """Also in words that the client does not have: as audits compare what an attacker reads. A bag has no <pad>."""
    worker, _ = hosting(tiny.experiment("fedevocab", evaluation=UNION, model=model))
    assert worker.rows.start == (model.get("name") == "bag")
    data = worker.test_in_all_words(1)
    assert (data.id, data.name) == (1, "client1")
    words_T = data.rows_R[data.test.tokens_T] + worker.rows.start
    assert words_T.tolist() == CORPUS.tests[1].tokens_T.tolist()
    assert data.test.offsets.tolist() == CORPUS.tests[1].offsets.tolist()
    assert data.rows_R.min() >= 0
    assert data.rows_R.max() < len(worker.rows)
    assert len(data.train) == 0


def test_metrics_of_audits_are_among_a_clients_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, flat = hosting(tiny.experiment(audits=["membership"]))
    asked = []

    def evaluate(client: int, round_: int, flat: np.ndarray, first: bool) -> Evaluated:
        asked.append((client, round_))
        assert first == (client == 0)
        return Evaluated({"found": 0.25 + client}, {"pooled": Scored(np.zeros(1, np.float32), np.ones(1, bool))})

    monkeypatch.setattr(worker.audits, "evaluate", evaluate)
    evaluations = worker.evaluate(flat, 2, [0, 2], final=False)
    assert asked == [(0, 2), (2, 2)]
    assert {client: evaluated.metrics["found"] for client, evaluated in evaluations.items()} == {0: 0.25, 2: 2.25}
    assert all(nonempty("Ag" in evaluated.metrics for evaluated in evaluations.values()))
    assert all(nonempty(set(evaluated.pooled) == {"Ag", "pooled"} for evaluated in evaluations.values()))


def test_each_clients_own_parameters_are_evaluated_on_the_union() -> None:
    """Whichever other clients are evaluated in the same call."""
    worker, flat = hosting(tiny.experiment("lg_fedavg", evaluation=UNION, training=tiny.TRAINING | {"stack": 1}))
    for client in (0, 1):
        assert not worker.train(flat, 1, [client])[0].error
    alone = {client: worker.evaluate(flat, 1, [client], final=True)[client].metrics["Global"] for client in (0, 1)}
    both = worker.evaluate(flat, 1, [0, 1], final=True)
    assert {client: evaluated.metrics["Global"] for client, evaluated in both.items()} == alone


@pytest.mark.parametrize(("method", "own"), [("fedevocab", True), ("fedavg", False)])
def test_audits_see_texts_in_the_words_of_all_where_clients_have_vocabularies_of_their_own(
    method: str, own: bool
) -> None:
    worker, _ = hosting(tiny.experiment(method, audits=["membership"]))
    assert worker.audits.known.tests == (worker.test_in_all_words if own else None)


def test_scores_are_pooled_of_the_model_that_is_shared_alone() -> None:
    worker, flat = hosting(tiny.experiment(evaluation={"personalize": {"steps": 2}, "union": {}}))
    assert set(worker.evaluate(flat, 1, [0], final=False)[0].metrics) == {"Ag"}
    evaluated = worker.evaluate(flat, 2, [0], final=True)[0]
    assert set(evaluated.metrics) == {"Ag", "Ap", "Local", "Global"}
    assert set(evaluated.pooled) == {"Ag"}, "as the areas under the ROC curve are"


def test_without_public_vectors_others_texts_are_encoded_in_a_clients_own_words() -> None:
    worker, _ = hosting(tiny.experiment("fedevocab", evaluation=UNION))
    assert CORPUS.public_SV is None
    for client in (0, 1):
        texts, rows_U = worker.union_texts(client)
        there_NT = np.arange(texts.padded_NT.shape[1]) < texts.lengths_N[:, None]
        words = (rows_U[texts.padded_NT] + worker.rows.start)[there_NT]
        own = CORPUS.clients[client].rows_R
        whole = np.concatenate([tests.tokens_T for tests in CORPUS.tests])
        assert words.tolist() == np.where(np.isin(whole, own), whole, UNK_ID).tolist()


@pytest.mark.parametrize(("batch_size", "steps"), [(4, 9), (5, 4), (99, 3), ({"steps": 3}, 7)])
def test_fine_tuning_takes_its_steps_along_the_batches_of_the_next_round(
    batch_size: Any, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of fifteen texts, epoch after epoch for as long as there are steps to take."""
    changes: dict[str, Any] = {"training": tiny.TRAINING | {"batch_size": batch_size}}
    worker, flat = hosting(tiny.experiment(evaluation={"personalize": {"steps": steps, "every": 1}}, **changes))
    taken = []

    def train(problem: Any, training: Any, optimizer: Any, work: list[Any]) -> list[Any]:
        taken.extend(batch.tolist() for each in work for batch in each.batches)
        return local_training.train(problem, training, optimizer, work)

    monkeypatch.setattr("fedtext.client.evaluate.train", train)
    worker.evaluate(flat, 2, [1], final=True)
    texts = worker.texts_of(1, "train")
    assert len(texts) == 15
    order = order_of(worker.experiment, texts, Phase("any", steps), 3, 1)
    assert taken == [batch.tolist() for batch in itertools.islice(order, steps)]
