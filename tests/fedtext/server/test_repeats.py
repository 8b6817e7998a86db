"""Rounds that too few clients complete, and evaluations that fail."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from torch import Tensor

from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.errors import ClientError, UserError
from fedtext.evaluation import Evaluated
from fedtext.messages import Reply, Update
from fedtext.methods import KTEPS
from fedtext.methods.base import Batch, Inference, Model
from fedtext.parameters import initial
from fedtext.records import RoundRecord
from fedtext.server.evaluations import add_evaluations
from fedtext.server.federation import Federation
from fedtext.server.sampling import sampled
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.noise_key import noise_key
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=6, texts=2)
SKIP = {"on_client_error": "skip", "fraction": 0.5}


def experiment(rounds: int = 4, method: Any = "kteps", **participation: Any) -> Experiment:
    return tiny.experiment(
        method,
        participation=SKIP | participation,
        training=tiny.TRAINING | {"rounds": rounds},
        evaluation={"personalize": None},
    )


def cohort(made: Experiment, round_: int, attempt: int, corpus: Corpus = CORPUS) -> list[int]:
    ids = range(len(corpus.clients))
    return sampled(made, ids, round_, noise_key(made, corpus.content, len(ids)), attempt)


class Failing(LocalFleet):
    """A fleet in which given clients fail in given calls of ``train``, counted from 1; it keeps the cohorts."""

    failing: Mapping[int, set[int]] = {}

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        self.cohorts = [*getattr(self, "cohorts", []), list(cohort)]
        broken = self.failing.get(len(self.cohorts), set())
        for reply in super().train(handle, round_, cohort):
            yield Reply(reply.client, error="OSError: no") if reply.client in broken else reply


def federation(made: Experiment, failing: Mapping[int, set[int]], folder: Path | None = None) -> Federation[Failing]:
    shared, private = initial(made, CORPUS)
    fleet = Failing(made, CORPUS, private)
    fleet.failing = failing
    return Federation(made, shared, fleet, Checkpoints(folder, "one") if folder else None)


def test_a_round_is_repeated_with_another_sample_as_if_nothing_had_been(caplog: pytest.LogCaptureFixture) -> None:
    """Two of the three clients of the second round fail, where two are needed: who did train is set back."""
    made = experiment(min_clients=2)
    first, second = cohort(made, 2, 1), cohort(made, 2, 2)
    assert first != second
    broken = federation(made, {2: set(first[:2])})
    with caplog.at_level(logging.WARNING):
        records = list(broken.run())
    assert broken.fleet.cohorts == [cohort(made, 1, 1), first, second, cohort(made, 3, 1), cohort(made, 4, 1)]
    assert [record.metrics.get("round_attempts") for record in records] == [None, 2, None, None]
    assert [record.metrics.get("clients_failed") for record in records] == [None, 2, None, None]
    assert (said := caplog.messages) == [
        f"round 2: 1 of 3 clients completed it, fewer than the 2 of participation.min_clients; client "
        f"client{min(first[:2])}: OSError: no; another sample of clients repeats it"
    ], said

    class Chosen(Federation[Failing]):
        """One that has the second sample at once."""

        def _sample(self, round_: int, attempt: int = 1, spent_s: float = 0.0) -> Any:
            return super()._sample(round_, 2 if round_ == 2 else attempt, spent_s)

    shared, private = initial(made, CORPUS)
    expected = Chosen(made, shared, Failing(made, CORPUS, private), None)
    plain = list(expected.run())
    assert broken.flat.tobytes() == expected.flat.tobytes()
    assert broken.fleet.private_states() == expected.fleet.private_states()
    assert records[1].metrics["bytes_up"] > plain[1].metrics["bytes_up"], "what was sent in vain counts"
    assert records[1].metrics["bytes_down"] > plain[1].metrics["bytes_down"]
    assert records[1].metrics["loss"] == plain[1].metrics["loss"]


def test_clients_whose_updates_the_server_refused_are_set_back() -> None:
    """They are not told, and keep what they have trained, which is of no round that counted."""
    made = experiment(rounds=1)
    first, second = cohort(made, 1, 1), cohort(made, 1, 2)
    refusing = federation(made, {})
    check, asked = refusing.step.summation.check, list[int]()

    def refuse(update: Update) -> None:
        asked.append(update.client)
        if len(asked) <= len(first):
            raise ValueError("too much for an exact sum")
        check(update)

    refusing.step.summation.check = refuse  # type: ignore[method-assign]
    (record,) = refusing.run()
    assert record.metrics["round_attempts"] == 2
    states = refusing.fleet.private_states()
    before = federation(made, {}).fleet.private_states()
    for client in nonempty(set(first) - set(second)):
        assert states.get(client) == before.get(client)


def test_a_run_that_goes_on_knows_who_took_part(tmp_path: Path) -> None:
    """The bytes that clients receive depend on when they last took part (lg_fedavg with rounds of FedAvg first)."""
    made = experiment(5, {"name": "lg_fedavg", "pretrain": 2}, min_clients=3)
    failing = {1: {cohort(made, 1, 1)[0]}}
    whole = federation(made, failing)
    records = list(whole.run())
    both = {*cohort(made, 1, 1), *cohort(made, 1, 2)}
    assert set(whole.downlink.cohort(1)) == both > {*cohort(made, 1, 2)}, "those of a round that was repeated too"
    begun = federation(made, failing, tmp_path)
    for record in nonempty(begun.run()):
        if record.round == 2:
            break
    rest = list(federation(made, {}, tmp_path).run())
    assert [record.metrics["bytes_down"] for record in rest] == [r.metrics["bytes_down"] for r in records[2:]]


def test_audits_know_the_clients_of_the_last_attempt() -> None:
    """The first of a round's clients is attacked; a client of the attempt before, which is set back, is not."""
    words = [f"w{number}" for number in range(2, 40, 3)]
    made = experiment(2, "fedavg", min_clients=2)
    made = Experiment.model_validate(made.model_dump() | {"audits": [{"name": "word_relations", "words": words}]})
    first, second = cohort(made, 2, 1), cohort(made, 2, 2)
    assert set(first) - set(second)
    assert set(second) - set(first)
    last = list(federation(made, {2: set(first[:2])}).run())[-1]
    assert {name for name, scores in last.clients.items() if "I_ser" in scores} == {f"client{i}" for i in second}


def test_after_three_attempts_the_run_fails() -> None:
    broken = federation(experiment(min_clients=3), {call: {0, 1, 2, 3, 4, 5} for call in (2, 3, 4)})
    run = broken.run()
    assert next(run).round == 1
    with pytest.raises(UserError, match=r"round 2: 0 of 3 .* the 3 of participation.min_clients, in attempt 3; client"):
        next(run)
    assert len(broken.fleet.cohorts) == 4


def test_without_other_clients_it_fails_at_once() -> None:
    broken = federation(experiment(fraction=1.0, min_clients=6), {1: {4}})
    with pytest.raises(UserError, match=r"round 1: 5 of 6 clients .* than the 6 .*client4: OSError: no"):
        next(broken.run())
    assert len(broken.fleet.cohorts) == 1


def test_noise_of_the_uplink_is_not_sent_twice() -> None:
    """A client of both samples would send two updates with the same noise, whose difference has none: dropout differs
    if other clients are trained beside it."""
    made = experiment(min_clients=2)
    noisy = {"uplink": [{"name": "clip", "norm": 1.0}, {"name": "gaussian", "sigma": 0.1}]}
    made = Experiment.model_validate(made.model_dump() | noisy)
    broken = federation(made, {1: set(range(6))})
    with pytest.raises(UserError, match="round 1: 0 of 3 clients"):
        next(broken.run())
    assert len(broken.fleet.cohorts) == 1


def test_a_sample_of_too_few_is_drawn_again() -> None:
    made = experiment(sampling="poisson", fraction=0.4, min_clients=4, on_client_error="fail")
    assert [len(cohort(made, 1, attempt)) for attempt in (1, 2)] == [3, 5], "of this seed"
    ran = federation(made, {})
    assert next(ran.run()).metrics["round_attempts"] == 2
    assert ran.fleet.cohorts[-1] == cohort(made, 1, 2)


def test_more_than_a_round_has_are_refused() -> None:
    with pytest.raises(UserError, match=r"participation.min_clients: 4, but a round has at most 3 of 6 clients"):
        federation(experiment(min_clients=4), {})
    noisy = {"noise": {"multiplier": 1.0}, "weights": "uniform"}
    with pytest.raises(ValidationError, match=r"leave out participation\.min_clients"):
        tiny.experiment(
            participation={"min_clients": 2}, server=noisy, uplink=[{"clip": {"norm": 1.0}}], wire={"rows": "all"}
        )


class Unreadable(KTEPS):
    """A method that cannot predict for the clients in ``broken``."""

    name: str = "unreadable"  # type: ignore[assignment]
    broken: frozenset[int]

    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        if batch.task in self.broken:
            raise OSError("cannot be read")
        return super().probabilities(model, batch, inference)


def evaluated(broken: set[int], on_client_error: str) -> list[RoundRecord]:
    made = experiment(2, on_client_error=on_client_error, fraction=1.0)
    method = Unreadable(broken=frozenset(broken))
    shared, private = initial(made, CORPUS)
    unreadable = made.model_copy(update={"method": method})
    return list(Federation(unreadable, shared, LocalFleet(unreadable, CORPUS, private), None).run())


def test_clients_that_are_only_attacked_do_not_hide_that_all_evaluations_failed() -> None:
    names, record = ["a", "b", "c"], RoundRecord(1, 0.0, {})
    found = {0: Evaluated(problem="OSError"), 1: Evaluated({"rows_f1": 0.5}), 2: Evaluated()}
    with pytest.raises(ClientError, match="client a failed in round 1: OSError"):
        add_evaluations(record, found, names, None, attacked={1, 2})
    add_evaluations(record, found | {0: Evaluated({"Ag": 1.0})}, names, None, attacked={1, 2})
    assert record.clients == {"a": {"Ag": 1.0}, "b": {"rows_f1": 0.5}}, "a client without metrics has no entry"


def test_an_evaluation_that_fails_is_left_out_as_its_client_is(caplog: pytest.LogCaptureFixture) -> None:
    whole, records = evaluated(set(), "skip"), evaluated({1, 4}, "skip")
    assert (
        caplog.messages[0]
        == "client client1 failed in round 1: OSError: cannot be read; it is left out of the evaluation"
    )
    assert len(caplog.messages) == 4
    for record, full in nonempty(zip(records, whole, strict=True)):
        assert record.metrics["evaluations_failed"] == 2
        assert "evaluations_failed" not in full.metrics
        assert sorted(record.clients) == ["client0", "client2", "client3", "client5"]
        accuracies = [full.clients[name]["Ag"] for name in record.clients]
        assert record.metrics["Ag"] == pytest.approx(sum(accuracies) / 4)
        assert record.metrics["loss"] == full.metrics["loss"], "they train as before"


def test_an_evaluation_that_fails_everywhere_or_is_not_to_be_skipped_fails_the_run() -> None:
    with pytest.raises(ClientError, match="client client0 failed in round 1: OSError: cannot be read"):
        evaluated(set(range(6)), "skip")
    with pytest.raises(ClientError, match="client client4 failed in round 1: OSError: cannot be read"):
        evaluated({4}, "fail")
