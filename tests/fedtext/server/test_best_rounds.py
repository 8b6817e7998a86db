"""Each client's best round, among those in which it took part."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedtext.config.experiment import Experiment
from fedtext.errors import ClientError
from fedtext.evaluation import Evaluated
from fedtext.testing.runs import final
from tests import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=5)


def experiment(method: Any = "fedevocab", best_round: bool = True, **changes: Any) -> Experiment:
    training = tiny.TRAINING | {"rounds": 4, "optimizer": {"lr": 0.3, "momentum": 0.5}}
    changes = {"seed": 4, "participation": {"fraction": 0.2}, "training": training} | changes
    evaluation = {"personalize": None, "every": 4, "union": {"best_round": best_round}}
    return tiny.experiment(method, evaluation=evaluation, **changes)


@pytest.mark.parametrize("method", ["fedavg", "fedevocab", "fedrecon", "local_only"])
def test_clients_are_evaluated_in_their_rounds_and_their_best_values_averaged(method: str) -> None:
    """Compared with the evaluation of the last round, made after every round of all clients."""
    made = tiny.federation(experiment(method), CORPUS)
    best: dict[str, dict[int, float]] = {"Local": {}, "Global": {}}
    for record in nonempty(made.run()):
        evaluations = made.fleet.evaluate(made.fleet.broadcast(made.flat), record.round, True, ("test",))
        for client in made._sample(record.round).clients:
            for name, values in best.items():
                values[client] = max(values.get(client, 0.0), evaluations[client].metrics[name])
        for name, values in best.items():
            expected = np.mean([np.float32(value) for value in values.values()], dtype=np.float64)
            assert record.metrics[f"{name}_best_round"] == pytest.approx(float(expected), abs=1e-12)
    assert len(best["Local"]) == 3, "one takes part twice, and two in no round"


def test_nothing_else_of_a_run_changes() -> None:
    asked, plain = (final(experiment(best_round=best), CORPUS) for best in (True, False))
    assert asked[:2] == plain[:2]
    for ours, theirs in nonempty(zip(asked[2], plain[2], strict=True)):
        assert ours.keys() - theirs.keys() == {"Local_best_round", "Global_best_round"}
        assert ours.items() >= theirs.items()


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_that_was_interrupted_knows_the_rounds_before(stop: int, tmp_path: Path) -> None:
    whole = final(experiment(), CORPUS)
    final(experiment(), CORPUS, tmp_path, rounds=stop)
    assert final(experiment(), CORPUS, tmp_path) == whole


def test_only_clients_that_are_evaluated_count() -> None:
    made = experiment(participation={"fraction": 1.0})
    some = made.model_copy(update={"evaluation": made.evaluation.model_copy(update={"clients": 2})})
    federation = tiny.federation(some, CORPUS)
    *_, last = federation.run()
    known = ~np.isnan(federation.evaluation.best_rounds.best["Local"])
    assert np.flatnonzero(known).tolist() == federation.fleet.clients.evaluated()
    assert known.sum() == 2
    assert last.metrics["Local_best_round"] >= last.metrics["Local"]


def test_a_client_whose_evaluation_fails_is_left_out_or_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    everybody: dict[str, Any] = {"fraction": 1.0}
    made = tiny.federation(experiment(participation=everybody | {"on_client_error": "skip"}), CORPUS)
    whole = made.fleet.worker.own_models

    def failing(flat: Any, round_: int, members: Any) -> dict[int, Evaluated]:
        return whole(flat, round_, members) | {1: Evaluated(problem="it is broken")}

    monkeypatch.setattr(made.fleet.worker, "own_models", failing)
    with caplog.at_level(logging.WARNING):
        next(made.run())
    assert "client1" in caplog.text
    assert "it is broken" in caplog.text
    assert np.flatnonzero(np.isnan(made.evaluation.best_rounds.best["Global"])).tolist() == [1]

    strict = tiny.federation(experiment(participation=everybody), CORPUS)
    monkeypatch.setattr("fedtext.client.worker.own_model", lambda *_: 1 / 0)
    with pytest.raises(ClientError, match="division by zero"):
        next(strict.run())


def test_trials_are_not_chosen_by_it() -> None:
    assert {"Local_best_round", "Global_best_round"} <= experiment().evaluated_metrics
    for tune, said in (
        ({"metric": "Global_best_round"}, "Input should be"),
        ({"metric": "Local", "metrics": ["Local", "Global_best_round"]}, "test texts have chosen Global_best_round"),
    ):
        with pytest.raises(ValidationError, match=said):
            experiment(tune=tune)
