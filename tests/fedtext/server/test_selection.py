"""Which round's model counts, when a figure was good enough, and what a sweep is sorted by."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.records import RoundRecord
from fedtext.server.selection import best_round, reached
from tests import tiny
from tests.loops import nonempty
from tests.runs.test_language_models import SELECTING, federation
from tune_spaces.objectives import check_metric


def overshooting(**evaluation: Any) -> Experiment:
    """Steps so large that validation gets worse after a while."""
    training = tiny.TRAINING | {"rounds": 6, "local_epochs": 10, "optimizer": {"lr": 0.25, "momentum": 0.5}}
    return tiny.language_model(training=training, evaluation=SELECTING | evaluation)


def test_test_texts_are_read_once_by_the_round_that_validation_likes_best() -> None:
    made, states = federation(overshooting()), []
    rows = []
    for record in made.run():
        states.append(made.flat)
        rows.append(record)
    values = [record.metrics["perplexity_val"] for record in rows[:-1]]
    best = int(np.argmin(values)) + 1
    assert best < 5, "the last rounds are to be worse"
    last = rows[-1].metrics
    assert last["selected_round"] == best
    assert last["perplexity_val"] == values[best - 1]
    assert not any(nonempty("perplexity" in record.metrics for record in rows[:-1]))
    assert not any(nonempty("perplexity" in figures for record in rows[:-1] for figures in record.clients.values()))
    readings = made.fleet.evaluate(made.fleet.broadcast(states[best - 1]), 6, False, ("test",))
    told = {made.names[client]: reading.metrics["perplexity"] for client, reading in readings.items()}
    assert {name: figures["perplexity"] for name, figures in rows[-1].clients.items()} == told


@pytest.mark.parametrize("stop", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_still_knows_its_best_round(stop: int, tmp_path: Path) -> None:
    def figures(rows: list[Any]) -> dict[str, float]:
        return {k: v for k, v in rows[-1].metrics.items() if not k.endswith("seconds")}

    expected = figures(list(federation(overshooting()).run()))
    for record in federation(overshooting(), tmp_path).run():
        if record.round == stop:
            break
    assert figures(list(federation(overshooting(), tmp_path).run())) == expected


def test_the_first_rounds_beyond_a_threshold_are_told() -> None:
    rows = list(federation(overshooting(select="last", thresholds={"perplexity_val": [1e6, 16.0, 1.0]})).run())
    metrics = [record.metrics for record in rows]
    assert metrics[0]["rounds_to_perplexity_val_1000000"] == 1
    first = next(number for number, values in enumerate(metrics, 1) if values["perplexity_val"] <= 16)
    assert metrics[first - 1]["rounds_to_perplexity_val_16"] == first
    spent = sum(values["bytes_up"] + values["bytes_down"] for values in metrics[:first])
    assert metrics[first - 1]["bytes_to_perplexity_val_16"] == spent
    named = [name for values in metrics for name in values if name.startswith("rounds_to")]
    assert len(named) == 2, "each once, and the one that was not reached never"


def records_of(metric: str, *values: float | None) -> list[RoundRecord]:
    return [
        RoundRecord(n, 0.0, {"bytes_total": 3 * n} | ({} if value is None else {metric: value}))
        for n, value in enumerate(values, 1)
    ]


def test_the_best_round_is_the_first_of_the_best_and_never_one_without_a_number() -> None:
    assert best_round(records_of("perplexity_val", 9, None, 3, 3, math.nan), "perplexity_val") == 3
    assert best_round(records_of("Ag_val", math.nan, 0.5, 0.7, None, 0.7), "Ag_val") == 3
    assert best_round(records_of("Ag_val", None, math.nan), "Ag_val") == 0
    assert reached(records_of("Ag_val", 0.5, 0.8), {"Ag_val": (0.7,)}) == {
        "rounds_to_Ag_val_0.7": 2,
        "bytes_to_Ag_val_0.7": 6,
    }
    timed = records_of("Ag_val", 0.5, 0.8)
    for record in timed:
        record.metrics["simulated_seconds_total"] = 1.5 * record.round
    assert reached(timed, {"Ag_val": (0.7,)})["simulated_seconds_to_Ag_val_0.7"] == 3
    assert not reached(records_of("Ag_val", 0.5, 0.8, 0.9), {"Ag_val": (0.7, 0.95)})


@pytest.mark.slow
def test_without_a_number_nothing_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    made = federation(overshooting())
    monkeypatch.setattr(made.fleet, "evaluate", lambda *asked: {})
    with pytest.raises(UserError, match="no round has a perplexity_val"):
        list(made.run())


@pytest.mark.slow
def test_only_a_run_that_selects_keeps_a_second_model(tmp_path: Path) -> None:
    for select, files in (("last", 0), ("perplexity_val", 1)):
        folder = tmp_path / select
        rows = list(federation(overshooting(select=select), folder).run())
        assert rows[-1].metrics.get("selected_round", 6) < 6 + (select == "last")
        assert len(list(folder.glob("round-000006/selected.f32"))) == files


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (
            "Ap_val",
            "not computed for fedavg with gru_lm: sort by bits_per_byte or bits_per_byte_val or perplexity or .*loss$",
        ),
        ("AUC", "gru_lm"),
    ],
)
def test_a_sweep_is_sorted_by_what_can_be_written(metric: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_metric(tiny.language_model(tune={"metric": metric}))
    check_metric(tiny.language_model(tune={"metric": "perplexity_val"}))
    with pytest.raises(
        UserError, match="perplexity is not computed for fedavg with bigru: sort by AUC or Ag or Ap or loss"
    ):
        check_metric(tiny.experiment(tune={"metric": "perplexity"}))
