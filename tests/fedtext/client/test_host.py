"""The clients of one place: what they start with, what is kept of them, and what is left when they leave."""

import itertools
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.texts import order_of
from fedtext.client.worker import Worker
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.methods import FedAvg
from fedtext.methods.base import Phase
from fedtext.methods.state import Local, State, Tensors
from fedtext.parameters import initial
from fedtext.server.method_state import MethodState
from fedtext.state.noise_key import NoiseKey, noise_key
from fedtext.text.tokens import UNK_ID
from fedtext.training import local as local_training
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=3)
UNION = {"personalize": None, "union": {}}


def hosting(experiment: Experiment, corpus: Corpus = CORPUS) -> tuple[Worker, np.ndarray]:
    shared, private = initial(experiment, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    return LocalFleet(experiment, corpus, private).worker, flat


def test_who_leaves_takes_its_state_along_and_nothing_of_it_stays() -> None:
    worker, flat = hosting(tiny.experiment("kteps", training=tiny.TRAINING | {"stack": 1}))
    for client in (0, 1):
        assert not worker.train(flat, 1, [client])[0].error
    worker.evaluate(flat, 1, [0, 1, 2], final=False)
    assert {client for client, _ in worker.texts} == {0, 1, 2}
    kept = {name: value.copy() for name, value in worker.private[1].items()}
    states = worker.release([1, 2])
    assert set(worker.clients) == set(worker.private) == {0}
    assert {client for client, _ in worker.texts} == {0}
    assert states[2] == b"", "it never trained"
    assert {name: value.tolist() for name, value in load(states[1]).items()} == {n: v.tolist() for n, v in kept.items()}
    worker.adopt([CORPUS.clients[1]], {1: states[1]})
    assert set(worker.clients) == {0, 1}
    assert worker.private_states([1]) == {1: states[1]}
    worker.adopt([CORPUS.clients[2]], {2: b""})
    assert worker.private[2] == {}


@pytest.mark.parametrize("own", [None, {"words": "all", "std": 2.0}, {"words": "digits", "std": 2.0}])
def test_any_rows_of_a_table_are_those_that_a_client_starts_with(own: Any) -> None:
    """Of its own rows they are what its stack has; of others each client draws its own where that is asked for."""
    model = {"embedding": {"dim": 5, "own": own}, "hidden": 4}
    method = "fedrecon" if own and own["words"] == "digits" else "local_only"
    worker, flat = hosting(tiny.experiment(method, model=model))
    rows_X = np.arange(len(worker.rows), dtype=np.int32)
    tables = [worker.rows_of(flat, client, TABLE, rows_X) for client in (0, 1)]
    for client, table_XD in enumerate(tables):
        stack = worker.stack(flat, [client])
        assert torch.equal(table_XD[worker.clients[client].rows_R], stack.tensors(0)[TABLE])
        if own:  # standard normal numbers of the client's own, word after word
            chosen_X = np.ones(len(rows_X), bool) if own["words"] == "all" else worker.digits_V
            draw = worker.noise.paired(0, f"own start/{TABLE}", client=client)
            numbers = np.float32(2) * draw.standard_normal((np.count_nonzero(chosen_X), 5), np.float32)
            assert np.array_equal(table_XD.numpy()[chosen_X], numbers)
    differ_X = (tables[0] != tables[1]).any(1).numpy()
    words_X = rows_X + worker.rows.start
    if own is None:
        assert not differ_X.any()
    else:
        assert differ_X.tolist() == [own["words"] == "all" or (word % 3 == 0 and word > 0) for word in words_X]


def test_with_a_vocabulary_of_its_own_a_client_begins_with_unk_as_zeros() -> None:
    worker, flat = hosting(tiny.experiment("fedevocab"))
    rows_X = np.arange(len(worker.rows), dtype=np.int32)
    zeros_X = ~worker.rows_of(flat, 0, TABLE, rows_X).numpy().any(1)
    assert np.flatnonzero(zeros_X).tolist() == [UNK_ID - worker.rows.start]
    shared, flat = hosting(tiny.experiment("fedavg"))
    assert shared.rows_of(flat, 0, TABLE, rows_X).numpy().any(1).all()


def test_the_engine_decides_how_batches_are_read() -> None:
    def training(engine: str, **changes: Any) -> tuple[int | None, bool, str]:
        rounds = tiny.TRAINING | {"engine": engine, "stack": 1}
        worker, _ = hosting(tiny.experiment(training=rounds, **changes))
        assert worker.evaluating == replace(worker.training, cut=False)
        return worker.training.directions, worker.training.cut, worker.training.engine

    gru, bag = ({"name": name, "embedding": {"dim": 5}} for name in ("gru", "bag"))
    assert training("reference") == (None, False, "reference")
    assert training("cells") == (2, True, "cells")
    assert training("cells", model=gru | {"hidden": 4}) == (1, True, "cells")
    assert training("auto", model=bag) == (None, False, "reference"), "it has no steps"
    assert training("cells", method="fedprox") == (2, False, "cells"), "its loss reads the whole table"


def test_what_the_server_sent_goes_to_another_device_once() -> None:
    """The device "meta" has shapes and no numbers."""
    worker, flat = hosting(tiny.experiment())
    assert all(nonempty(view.base is not None for view in worker._received(flat).values()))
    assert worker.sent is None, "the processor reads it where it lies"
    worker.device = torch.device("meta")
    first = worker._received(flat)[TABLE]
    assert first.device.type == "meta"
    assert first.shape == worker.shared.shapes[TABLE]

    def storage() -> torch.Tensor:
        assert worker.sent is not None
        return worker.sent[1]

    sent = storage()
    worker._received(flat[:])  # another array over the same memory
    assert storage() is sent
    other = flat.copy()
    worker._received(other)
    assert storage() is not sent
    sent = storage()
    worker._received(other)
    assert storage() is sent


@pytest.mark.parametrize(("texts", "count"), [("all", 30), (7, 7), (30, 30), (31, 30)])
def test_everybodys_texts_are_all_or_as_many_as_are_asked_for(texts: Any, count: int) -> None:
    worker, _ = hosting(tiny.experiment("lg_fedavg", evaluation={"personalize": None, "union": {"texts": texts}}))
    read, rows_U = worker.union_texts(1)
    assert worker.union is not None
    assert len(read) == len(worker.union.test) == count
    assert worker.union_texts(2)[0] is read, "texts that all read alike are kept once"
    there_NT = np.arange(read.padded_NT.shape[1]) < read.lengths_N[:, None]
    words_NT = rows_U[read.padded_NT] + worker.rows.start
    found = [words_T[there_T].tolist() for words_T, there_T in zip(words_NT, there_NT, strict=True)]
    whole = iter([text for tests in CORPUS.tests for text in np.split(tests.tokens_T, tests.offsets[1:-1])])
    assert all(nonempty(any(text == each.tolist() for each in whole) for text in found)), "in their order"


def test_a_client_with_a_branch_of_its_own_reads_everybodys_texts_by_that() -> None:
    """Of methods that keep tasks apart a text's task says whose branch reads it."""
    worker, _ = hosting(tiny.experiment("asp_mtl", evaluation=UNION))
    for client in (0, 2):
        texts, _ = worker.union_texts(client)
        assert texts.tasks_N.tolist() == [client] * 30


def test_arithmetic_that_a_device_does_not_have_is_refused_where_clients_are_hosted() -> None:
    with pytest.raises(UserError, match=r"training\.tf32 is about a GPU's products, but clients would be trained"):
        hosting(tiny.experiment(training=tiny.TRAINING | {"tf32": True}))


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


def test_what_audits_find_stands_among_a_clients_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, flat = hosting(tiny.experiment(audits=["membership"]))
    asked = []

    def metrics(client: int, round_: int, flat: np.ndarray) -> dict[str, float]:
        asked.append((client, round_))
        return {"found": 0.25 + client}

    monkeypatch.setattr(worker.audits, "metrics", metrics)
    readings = worker.evaluate(flat, 2, [0, 2], final=False)
    assert asked == [(0, 2), (2, 2)]
    assert {client: reading.metrics["found"] for client, reading in readings.items()} == {0: 0.25, 2: 2.25}
    assert all(nonempty("Ag" in reading.metrics for reading in readings.values()))


def test_everybodys_texts_are_read_by_each_clients_own_parameters() -> None:
    """Whoever else is read in the same place."""
    worker, flat = hosting(tiny.experiment("lg_fedavg", evaluation=UNION, training=tiny.TRAINING | {"stack": 1}))
    for client in (0, 1):
        assert not worker.train(flat, 1, [client])[0].error
    alone = {client: worker.evaluate(flat, 1, [client], final=True)[client].metrics["Global"] for client in (0, 1)}
    both = worker.evaluate(flat, 1, [0, 1], final=True)
    assert {client: reading.metrics["Global"] for client, reading in both.items()} == alone


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("rows", "moves"), [("all", None), ("digits", True), ("others", False)])
def test_which_rows_of_a_stack_move(rows: Any, moves: bool | None, known: bool) -> None:
    """Every third word counts as one with a digit, or none does. Behind the clients' rows each has one that pads
    words."""
    worker, _ = hosting(tiny.experiment("fedrecon"), CORPUS if known else replace(CORPUS, digits_V=None))
    found_N1 = worker._moving_rows(Phase("any", 1, rows=rows), [0, 2])
    if moves is None:
        assert found_N1 is None
        return
    words_N = np.concatenate([worker.clients[client].rows_R + worker.rows.start for client in (0, 2)])
    expected = [float((known and word % 3 == 0 and word > 0) == moves) for word in words_N]
    assert found_N1 is not None
    assert found_N1.shape == (len(words_N) + 2, 1)
    assert found_N1[: len(words_N), 0].tolist() == expected
    assert found_N1[len(words_N) :, 0].tolist() == [0.0, 0.0]


class Numbered(FedAvg):
    """Sends clients the number of each row of the table, which they send back, and keep a multiple of."""

    name: Literal["numbered"] = "numbered"  # type: ignore[assignment]
    sends_state = True
    times: float = 1.0

    def extras(self, shared: Tensors) -> State:
        return self.server_state(shared)

    def after_update(self, local: Local) -> tuple[State, State]:
        return {"own": Tensors(first=torch.ones(1), last=self.times * torch.ones(1))}, dict(local.server)

    def server_state(self, shared: Tensors) -> State:
        return {"row": Tensors({TABLE: torch.arange(len(shared[TABLE]))[:, None].expand_as(shared[TABLE]).clone()})}


def numbered(**how: float) -> tuple[Worker, np.ndarray, dict[str, np.ndarray]]:
    """A worker, what its clients receive, and the shared parameters in it."""
    experiment = tiny.experiment().model_copy(update={"method": Numbered(**how)})
    shared, private = initial(experiment, CORPUS)
    packed = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    flat = MethodState(experiment.method, shared).with_state(packed)
    return LocalFleet(experiment, CORPUS, private).worker, flat, shared


def test_of_what_a_method_keeps_about_the_table_a_client_receives_its_own_rows() -> None:
    worker, flat, shared = numbered()
    rows_R = worker.clients[1].rows_R
    assert len(rows_R) < len(shared[TABLE])
    local = worker.local(flat, 1, worker.stack(flat, [1]))
    assert local.server["row"][TABLE][:, 0].tolist() == rows_R.tolist()
    assert np.array_equal(local.received[TABLE], shared[TABLE][rows_R])
    (reply,) = worker.train(flat, 1, [1])
    sent = load(reply.payload.tobytes())[f"row/{TABLE}"]
    expected = np.zeros_like(shared[TABLE])
    expected[rows_R] = rows_R[:, None]
    assert np.array_equal(sent, expected), "it sends all rows, of which the others are zeros"
    assert {name: tensor.tolist() for name, tensor in worker.private[1].items()} == {
        "#state/own/first": [1.0],
        "#state/own/last": [1.0],
    }


def test_state_that_is_not_finite_fails_its_client_and_is_not_kept() -> None:
    worker, flat, _ = numbered(times=1e39)
    (reply,) = worker.train(flat, 1, [1])
    assert reply.error == "ValueError: the state of method numbered is not finite: lower training.optimizer.lr"
    assert 1 not in worker.private


@pytest.mark.parametrize(("method", "own"), [("fedevocab", True), ("fedavg", False)])
def test_audits_read_texts_in_the_words_of_all_where_clients_have_vocabularies_of_their_own(
    method: str, own: bool
) -> None:
    worker, _ = hosting(tiny.experiment(method, audits=["membership"]))
    assert worker.audits.known.tests == (worker.test_in_all_words if own else None)


def test_a_client_without_train_texts_is_told_so() -> None:
    worker, flat = hosting(tiny.experiment())
    worker.clients[0] = replace(worker.clients[0], train=worker.clients[0].validation)
    worker.texts.clear()
    assert worker.train(flat, 1, [0])[0].error == "ValueError: it has no training texts"


def test_a_client_whose_training_diverges_fails_alone_and_keeps_what_it_had() -> None:
    """One in a stack with others, which takes numbers that are none from its earlier state."""
    worker, flat = hosting(tiny.experiment("kteps", training=tiny.TRAINING | {"stack": 3}))
    whole = worker.train(flat, 1, [0, 1, 2])
    name = max(worker.private[1])
    worker.private = {1: {name: np.full_like(worker.private[1][name], np.nan)}}
    replies = worker.train(flat, 1, [0, 1, 2])
    assert [reply.client for reply in replies] == [0, 1, 2]
    assert replies[1].error == "its training loss is nan; a lower training.optimizer.lr may help"
    assert replies[1].payload.size == 0
    assert replies[1].metrics == {}
    for client in (0, 2):
        assert replies[client].error == ""
        assert replies[client].payload.tobytes() == whole[client].payload.tobytes()
    assert set(worker.private) == {0, 1, 2}
    assert np.isnan(worker.private[1][name]).all()


def test_a_stack_that_fails_is_tried_client_by_client_and_a_client_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, flat = hosting(tiny.experiment())
    attempts = []

    def fails(flat: np.ndarray, round_: int, members: list[int]) -> None:
        attempts.append(list(members))
        raise OSError("no")

    monkeypatch.setattr(worker, "_train", fails)
    assert [reply.error for reply in worker.train(flat, 1, [0])] == ["OSError: no"]
    assert attempts == [[0]]
    assert [reply.error for reply in worker.train(flat, 1, [1, 2])] == ["OSError: no"] * 2
    assert attempts == [[0], [1, 2], [1], [2]]


def test_scores_are_pooled_of_the_model_that_is_shared_alone() -> None:
    worker, flat = hosting(tiny.experiment(evaluation={"personalize": {"steps": 2}, "union": {}}))
    assert set(worker.evaluate(flat, 1, [0], final=False)[0].metrics) == {"Ag"}
    reading = worker.evaluate(flat, 2, [0], final=True)[0]
    assert set(reading.metrics) == {"Ag", "Ap", "Local", "Global"}
    assert set(reading.pooled) == {"Ag"}, "as the areas under the ROC curve are"


@pytest.mark.parametrize(
    ("method", "changes", "more"),
    [
        ("fedavg", {}, set()),
        ("fedrecon", {}, {"loss_reconstruction"}),
        ("fedevocab", {}, {"loss_adaptation"}),
        ("fedavg", {"uplink": [{"project": {"d1": 1, "d2": 3}}]}, {"energy_kept"}),
    ],
)
def test_what_a_client_says_of_its_turn(method: str, changes: dict[str, Any], more: set[str]) -> None:
    experiment = tiny.experiment(method, training=tiny.TRAINING | {"stack": 3}, **changes)
    (worker, flat), (again, _) = hosting(experiment), hosting(experiment)
    replies = worker.train(flat, 1, [2, 0, 1])
    assert [reply.client for reply in replies] == [0, 1, 2]
    for reply in nonempty(replies):
        assert set(reply.metrics) == {"loss", "loss_ce", "samples", "seconds", "cpu_seconds"} | more
        assert reply.metrics["samples"] == len(CORPUS.clients[reply.client].train)
        assert reply.metrics["cpu_seconds"] >= 0
        *earlier, _ = experiment.method.phases(2)
        losses = {}
        for phase in earlier:
            stack = again.stack(flat, [reply.client])
            (outcome,) = again.run(phase, stack, flat, [reply.client], 1)
            losses[f"loss_{phase.name}"] = outcome.loss
        assert losses.keys() == more - {"energy_kept"}
        assert {name: reply.metrics[name] for name in losses} == pytest.approx(losses, rel=1e-5)
    if "energy_kept" in more:
        assert all(nonempty(0 < reply.metrics["energy_kept"] <= 1 for reply in replies))


@pytest.mark.parametrize(("method", "participants"), [("fedavg", 3), ("pooled", 4)])
def test_the_runs_key_is_that_of_all_participants_where_none_is_given(method: str, participants: int) -> None:
    """All texts in one place are one participant more."""
    experiment = tiny.experiment(method)
    _, private = initial(experiment, CORPUS)
    for members, among in ((CORPUS.clients, None), (CORPUS.clients[:1], 3)):
        worker = Worker(experiment, CORPUS, members, private, corpus_clients=among)
        assert worker.noise == noise_key(experiment, CORPUS.content, participants)
    given = NoiseKey(bytes(16))
    assert Worker(experiment, CORPUS, CORPUS.clients, private, noise=given).noise is given


def test_without_public_vectors_others_texts_are_read_in_a_clients_own_words() -> None:
    worker, _ = hosting(tiny.experiment("fedevocab", evaluation=UNION))
    assert CORPUS.public_SV is None
    for client in (0, 1):
        texts, rows_U = worker.union_texts(client)
        there_NT = np.arange(texts.padded_NT.shape[1]) < texts.lengths_N[:, None]
        words = (rows_U[texts.padded_NT] + worker.rows.start)[there_NT]
        own = CORPUS.clients[client].rows_R
        whole = np.concatenate([tests.tokens_T for tests in CORPUS.tests])
        assert words.tolist() == np.where(np.isin(whole, own), whole, UNK_ID).tolist()


def test_each_phase_of_a_turn_draws_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last phase draws as if it were alone, so that a method with phases differs from one without in them alone."""
    worker, flat = hosting(tiny.experiment("fedevocab"))
    adaptation, joint = worker.method.phases(1)
    seen = []

    def train(problem: Any, training: Any, optimizer: Any, work: list[Any]) -> list[Any]:
        seen.append([batch.tolist() for each in work for batch in each.batches])
        return []

    monkeypatch.setattr("fedtext.client.host.train", train)
    worker.run(adaptation, worker.stack(flat, [1]), flat, [1], 2)
    texts = worker.texts_of(1, "train")

    def drawn(phase: Phase, last: bool) -> list[list[int]]:
        return [batch.tolist() for batch in order_of(worker.experiment, texts, phase, 2, 1, last)]

    assert seen == [drawn(adaptation, False)]
    assert drawn(adaptation, False) != drawn(adaptation, True) == drawn(joint, True)
    (work,) = worker.work(joint, [1], 2)
    assert [batch.tolist() for batch in work.batches] == drawn(joint, True)


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
