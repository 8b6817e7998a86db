"""Which values of a trial tables show after its last round, and searches judge."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dashboards.groups import groups, metrics_of
from dashboards.report.contents import client_means
from dashboards.trial import Outcome
from fedtext.config.tune import Tune
from fedtext.metrics import ATTACKED, EVALUATED, find
from fedtext.records import RoundRecord
from fedtext.server.last import last_values
from sweeps.suggested import result_of
from tests.dashboards.test_report_seeds import compared
from tests.planned import kteps
from tune_spaces.search import Result


def history(*rounds: Mapping[str, float | None]) -> tuple[RoundRecord, ...]:
    return tuple(RoundRecord(place, 0.0, dict(metrics)) for place, metrics in enumerate(rounds, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["AUC", "member_auc", "member_pooled_tpr_at_1pct_fpr", "rows_ptlr", "I_ser", "evaluations_failed"]
)
def test_what_the_last_evaluated_round_leaves_out_has_no_value(name: str) -> None:
    assert name not in last_values(history({"Ag": 0.5, name: 0.9}, {"Ag": 0.6}))
    assert name not in last_values(history({"Ag": 0.5, name: 0.9}, {"Ag": 0.6, name: None}))
    assert last_values(history({"Ag": 0.5}, {"Ag": 0.6, name: 0.9}))[name] == 0.9


def test_rounds_without_an_evaluation_change_nothing() -> None:
    """``evaluation.every``, and a run that was interrupted before its last round."""
    found = last_values(history({"Ag": 0.5, "AUC": 0.8}, {"Ag": 0.6, "AUC": 0.9}, {"loss": 1.0}))
    assert found == {"Ag": 0.6, "AUC": 0.9, "loss": 1.0}
    assert last_values(history({"loss": 2.0}, {"loss": 1.0})) == {"loss": 1.0}
    assert last_values(()) == {}


def test_what_is_computed_once_or_counts_until_now_keeps_its_last_value() -> None:
    first = {
        "rounds_to_Ag_0.5": 1.0,
        "bytes_to_Ag_0.5": 1e6,
        "simulated_seconds_to_Ag_0.5": 9.0,
        "epsilon": 2.0,
        "simulated_seconds_total": 9.0,
        "seconds_lost": 3.0,
        "Ap": 0.7,
        "inversion_public_recall": 0.4,
        "my_plugin": 0.1,
    }
    assert last_values(history({"Ag": 0.5} | first, {"Ag": 0.6})) == {"Ag": 0.6} | first


def test_rounds_that_an_audit_names_are_not_every_evaluated_round() -> None:
    kinds = {name: metric.when for name in ("inversion_distance", "AUC") if (metric := find(name))}
    assert kinds == {"inversion_distance": ATTACKED, "AUC": EVALUATED}


def test_tables_and_searches_have_no_value_of_an_older_model() -> None:
    case = kteps(0, 0.0)
    tune = Tune(metric="AUC_val", mode="max")
    rows = history({"Ag": 0.5, "AUC_val": 0.9}, {"Ag": 0.6})
    outcomes = {case.id: Outcome("finished", rows)}
    assert metrics_of(groups([case])[0], outcomes).keys() == {"Ag"}
    assert result_of([case], outcomes, tune) == Result()
    assert result_of([case], {case.id: Outcome("finished", rows[:1])}, tune) == Result.of([0.9])


def test_tables_of_clients_have_those_of_the_last_evaluated_round() -> None:
    (row,) = compared({0.0: [{"Ag": 0.5}]}).rows
    rows = history({"Ag": 0.5}, {"Ag": 0.6}, {"loss": 1.0})
    rows[0].clients.update(dvd={"Ag": 0.5, "Ap": 0.7}, books={"Ag": 0.4})
    rows[1].clients.update(dvd={"Ag": 0.6})
    (sample,) = row.samples
    row = replace(row, samples=(replace(sample, records=rows),))
    assert {client: found.mean for client, found in client_means(row, "Ag").items()} == {"dvd": 0.6}
    assert {client: found.mean for client, found in client_means(row, "Ap").items()} == {"dvd": 0.7}
