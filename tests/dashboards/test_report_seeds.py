"""Reports of sweeps in which some seeds have failed: what is the best among rows, and what is not compared."""

import csv
import io
import math
import re
from typing import Any

import pytest
from scipy import stats

from dashboards.description import LACKING, of_group
from dashboards.groups import groups, metrics_of
from dashboards.report.collect import Sweep
from dashboards.report.contents import clients, differences, effects, results
from dashboards.report.measures import measure
from dashboards.report.sections import by_client, tradeoffs
from dashboards.report.svg import Ids
from dashboards.report.tables import as_csv
from dashboards.report.tradeoff import axes, front, points, tradeoff
from dashboards.table import print_table
from dashboards.trial import Outcome
from fedtext.config.files import validate
from fedtext.records import RoundRecord
from tests.loops import nonempty
from tune_spaces.cases import cases

Values = dict[str, float] | None  # of a trial; None: it has failed


def compared(found: dict[float, list[Values]]) -> Sweep:
    """A sweep of FedProx over mu whose trials ended with these metrics, one for each seed; client dvd has the same."""
    content: dict[str, Any] = {
        "name": "x",
        "corpus": {"name": "demo", "validation": 0.2},
        "model": "bag",
        "method": "fedprox",
        "training": {"rounds": 1},
        "seeds": len(next(iter(found.values()))),
        "space": {"method.mu": {"grid": list(found)}},
    }
    experiment = validate(content)
    made = cases(content, experiment, "x")
    ended = {}
    for case in made:
        values = found[case.overrides["method.mu"]][case.experiment.seed]
        record = RoundRecord(1, 0.0, dict(values or {}), {"dvd": dict(values or {})})
        ended[case.id] = Outcome("failed", (), "it has no memory") if values is None else Outcome("finished", (record,))
    return Sweep("x", experiment, made, ended, {})


# Under the one seed that both have mu = 0 is better. Its mean is less, since the others were hard.
WHOLE = [{"Ag": value, "bytes_total": sent} for value, sent in ((0.8, 1e6), (0.6, 1e6), (0.7, 1e6))]
LUCKY: list[Values] = [{"Ag": 0.79, "bytes_total": 5e5}, None, None]
WORSE = [{"Ag": value, "bytes_total": 2e6} for value in (0.7, 0.5, 0.6)]


def test_rows_that_lack_a_seed_are_drawn_and_not_on_the_front() -> None:
    sweep = compared({0.0: list(WHOLE), 0.1: LUCKY, 0.2: list(WORSE)})
    across, up = measure("bytes_total"), measure("Ag")
    found = points(sweep, across, up)
    assert len(found) == 3, "all of them are drawn"
    assert [one.row.label for one in front(found, up)] == ["fedprox mu=0"]
    drawn = tradeoff(Ids(), found, across, up, {"fedprox": 0})
    assert "On the Pareto front: 1 fedprox mu=0.<" in drawn
    assert re.findall(r"fedprox mu=([\d.]+): [^<]*, not of every seed<", drawn) == ["0.1"]
    section = tradeoffs(Ids(), sweep)
    assert section is not None
    assert "Rows that lack a value for a seed are no candidates." in section.content
    complete = tradeoffs(Ids(), compared({0.0: list(WHOLE), 0.2: list(WORSE)}))
    assert complete is not None
    assert "no candidates" not in complete.content


def test_a_front_needs_a_row_with_every_seed_of_both_measures() -> None:
    half: list[Values] = [{"Ag": 0.9, "epsilon": 1.0}, {"Ag": 0.9}]
    none: list[Values] = [{"Ag": 0.5}, {"Ag": 0.6}]
    up = measure("Ag")
    found = points(compared({0.0: half, 0.1: none}), measure("epsilon"), up)
    assert [(one.row.label, one.side, one.whole) for one in nonempty(found)] == [
        ("fedprox mu=0", "", False),
        ("fedprox mu=0.1", "no guarantee", True),
    ]
    assert [one.row.label for one in front(found, up)] == ["fedprox mu=0.1"]
    sweep = compared({0.0: LUCKY, 0.1: [None, *LUCKY[:1], None]})
    drawn = tradeoff(Ids(), points(sweep, measure("bytes_total"), up), measure("bytes_total"), up, {"fedprox": 0})
    assert "On the Pareto front: none." in drawn
    assert axes(compared({0.0: list(WHOLE), 0.1: LUCKY}))[0], "what differs does not depend on seeds"


def test_the_best_of_each_client_is_among_rows_with_every_seed() -> None:
    sweep = compared({0.0: list(WHOLE), 0.1: LUCKY, 0.2: list(WORSE)})
    table = clients(sweep, "Ag")
    (line,) = table.rows
    marked = {head for head, field in zip(table.heads, line, strict=True) if field.strong}
    assert marked == {"fedprox mu=0"}
    assert "Marked: the best of each client, of the rows that have a value of every seed." in table.notes
    section = by_client(Ids(), sweep)
    assert section is not None
    assert "Outlined: the best of each client, of the rows that have a value of every seed." in section.content
    assert re.findall(r'class="[^"]*strong[^"]*"[^>]*>([\d.]+)<', section.content.partition("</svg>")[0]) == ["70.0"]
    whole = clients(compared({0.0: list(WHOLE), 0.2: list(WORSE)}), "Ag")
    assert "Marked: the best of each client." in whole.notes


FEWER: list[Values] = [
    {"Ap_val": 0.8, "AUC": 0.9, "loss": 1.0},
    {"Ap_val": 0.6, "AUC": 0.7},
    {"Ap_val": 0.7, "loss": math.nan},
]
EACH: list[Values] = [{"Ap_val": value} for value in (0.5, 0.6, 0.4)]


def test_a_mean_of_fewer_seeds_than_have_ended_says_so() -> None:
    """An area of scores that are no numbers is left out: the mean of the other seeds is not that of the case."""
    sweep = compared({0.0: FEWER, 0.1: EACH})
    found = as_csv(results(sweep)).splitlines()
    texts = {field.text for row in results(sweep).rows for field in row}
    assert {"70.0 ± 10.0", "80.0 ± 14.1 (2 of 3 seeds)", "1.000 (1 of 3 seeds)"} <= texts
    assert found[0] == "#,method,mu,seeds,AUC (%),AUC (%) sd,AUC (%) seeds,Ap_val (%),Ap_val (%) sd,loss,loss seeds"
    assert found[1].split(",")[3:] == ["3", "80", "14.1421356237", "2", "70", "10", "1", "1"]
    made = effects(sweep)
    assert made is not None
    shown = {field.text for row in made.rows for field in row}
    assert "80.0 ± 14.1 (2 of 3 trials)" in shown
    out = io.StringIO()
    print_table(sweep.cases, sweep.outcomes, "Ap_val", "max", out)
    first = re.sub(" {3,}", "  ", out.getvalue().splitlines()[2])
    assert "80.0 ± 14.1 (2 of 3 seeds)  70.0 ± 10.0  1.000 (1 of 3 seeds)" in first


def test_mlflow_says_which_metrics_are_means_of_fewer_seeds() -> None:
    sweep = compared({0.0: FEWER, 0.1: EACH})
    for group, lacking in zip(groups(sweep.cases), ("eval/AUC: 2 of 3, loss/loss: 1 of 3", "none"), strict=True):
        _, end = of_group(group, metrics_of(group, sweep.outcomes), "FINISHED", 1.0, {})
        assert end.metrics["seeds.ended"] == 3
        assert end.tags == {"seeds": "0, 1, 2", LACKING: lacking}


def test_each_number_of_the_differences_has_a_name_of_its_own_and_says_of_how_many_seeds_it_is() -> None:
    other: list[Values] = [{"Ap_val": 0.5, "AUC": 0.6}, {"Ap_val": 0.6, "AUC": 0.7}, {"Ap_val": 0.4, "AUC": 0.2}]
    found = differences(compared({0.0: FEWER, 0.1: other}))
    assert found is not None
    (line,) = csv.DictReader(io.StringIO(as_csv(found)))
    assert list(line) == [
        *("method", "AUC (points)", "AUC (points) se", "AUC (points) seeds", "AUC (points) p"),
        *("Ap_val (points)", "Ap_val (points) se", "Ap_val (points) p"),
    ]
    apart = stats.ttest_rel([0.6, 0.7], [0.9, 0.7])
    assert float(line["AUC (points)"]) == pytest.approx(-15)
    assert (float(line["AUC (points) p"]), line["AUC (points) seeds"]) == (pytest.approx(apart.pvalue), "2")
    apart = stats.ttest_rel([0.5, 0.6, 0.4], [0.8, 0.6, 0.7])
    assert float(line["Ap_val (points) p"]) == pytest.approx(apart.pvalue)
    assert [field.text for field in found.rows[0]][1] == "−15.0 ± 15.0 (2 of 3 seeds)"
