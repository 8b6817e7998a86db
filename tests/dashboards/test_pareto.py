"""The Pareto front of a search, printed and in a report."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from dashboards.pareto import front, print_front
from dashboards.report.front import front as front_table
from dashboards.report.page import page
from dashboards.trial import Outcome
from fedtext.config.tune import Tune
from fedtext.records import RoundRecord
from tests.loops import nonempty
from tests.planned import Planned, kteps
from tests.reported import PRIVATE, read, trained

OBJECTIVES: Any = {"Ap_val": "max", "epsilon": "min", "bytes_total": "min"}


def outcome(status: Any = "finished", **metrics: float) -> Outcome:
    return Outcome(status, (RoundRecord(1, 0.0, {"delta": 1e-5} | metrics),))


CASES: list[Planned] = [kteps(number, 0.1 * number) for number in range(7)]
OUTCOMES = {
    "00-kteps": outcome(Ap_val=0.9, epsilon=8.0, bytes_total=2e6),  # the most accurate
    "01-kteps": outcome(Ap_val=0.8, epsilon=2.0, bytes_total=2e6),  # the most private
    "02-kteps": outcome(Ap_val=0.8, epsilon=2.5, bytes_total=1e6),  # the cheapest
    "03-kteps": outcome(Ap_val=0.8, epsilon=2.5, bytes_total=2e6),  # beaten by both
    "04-kteps": outcome(Ap_val=0.9, epsilon=8.0, bytes_total=2e6),  # as good as the first
    "05-kteps": outcome(Ap_val=0.99, bytes_total=1e3),  # without a guarantee
    "06-kteps": outcome("failed", Ap_val=0.99, epsilon=0.1, bytes_total=1.0),
}


def test_the_front_has_what_no_other_case_beats() -> None:
    found = front(CASES, OUTCOMES, OBJECTIVES)
    assert [group.id for group, _ in found] == ["00-kteps", "04-kteps", "01-kteps", "02-kteps"]
    nearly = OUTCOMES | {"03-kteps": outcome(Ap_val=0.8 + 1e-16, epsilon=2.5 - 1e-15, bytes_total=1e6)}
    both = [group.id for group, _ in front(CASES, nearly, OBJECTIVES)]
    assert both == ["00-kteps", "04-kteps", "01-kteps", "02-kteps", "03-kteps"], "values that differ by rounding alone"
    assert [group.id for group, _ in front(CASES, OUTCOMES, {"Ap_val": "min"})] == ["01-kteps", "02-kteps", "03-kteps"]
    baseline = Planned("07-fedavg", "fedavg", True, CASES[0].experiment)
    better = OUTCOMES | {"07-fedavg": outcome(Ap_val=1.0, epsilon=0.1, bytes_total=1.0)}
    assert [group.id for group, _ in front([*CASES, baseline], better, OBJECTIVES)] == [group.id for group, _ in found]


def test_the_front_is_printed_with_the_values_of_all_objectives() -> None:
    out = io.StringIO()
    print_front(CASES, OUTCOMES, OBJECTIVES, out)
    assert out.getvalue().splitlines() == [
        "Pareto front of Ap_val (max), epsilon (min), bytes_total (min): 4 of 5 cases, which no other one dominates "
        "(at least as good in all, and better in one)",
        "  00-kteps lambda1=0    Ap_val 90.0  epsilon 8    bytes_total 2.0 MB",
        "  04-kteps lambda1=0.4  Ap_val 90.0  epsilon 8    bytes_total 2.0 MB",
        "  01-kteps lambda1=0.1  Ap_val 80.0  epsilon 2    bytes_total 2.0 MB",
        "  02-kteps lambda1=0.2  Ap_val 80.0  epsilon 2.5  bytes_total 1.0 MB",
    ]
    print_front(CASES, OUTCOMES, {"Ag": "max", "epsilon": "min"}, out)
    assert "no trial of the space has all of them" in out.getvalue()
    print_front(CASES, {"00-kteps": outcome(Ag=0.9, epsilon=8.0)}, {"Ag": "max", "epsilon": "min"}, out)
    assert "Note: Ag is evaluated on the test split" in out.getvalue()


def test_a_report_has_the_front_as_a_table_and_its_axes_first(tmp_path: Path) -> None:
    metrics = ["Ap_val", "bytes_total", "member_auc"]
    content = PRIVATE | {"tune": {"metric": "Ap_val", "metrics": metrics}}
    sweep = read(trained(tmp_path / "several", content))
    table = front_table(sweep)
    assert table is not None
    assert table.heads[2:] == ["Ap_val (%)", "bytes_total", "member_auc (%)"]
    expected = {group.id for group, _ in front(sweep.cases, sweep.outcomes, sweep.experiment.tune.objectives)}
    places = {str(place): row.id for place, row in enumerate(sweep.rows, 1)}
    assert {places[row[0].text] for row in nonempty(table.rows)} == expected
    shown = [part for part in page(sweep).split('<div class="pair"')[1:] if " hidden>" not in part.partition("<svg")[0]]
    assert len(shown) == 1
    assert 'data-x="member_auc" data-y="Ap_val"' in shown[0]
    alone = sweep.experiment.model_copy(update={"tune": Tune()})
    assert front_table(replace(sweep, experiment=alone)) is None
