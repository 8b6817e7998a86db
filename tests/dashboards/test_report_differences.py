"""Differences between the rows of a report, paired by seed, and the best of its rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dashboards.paired import holm
from dashboards.report.collect import Row, Sample
from dashboards.report.compare import best_rows, paired
from dashboards.report.measures import measure
from tests.loops import nonempty


def row(label: str, *values: float, seeds: int = 2) -> Row:
    made = [Sample(label, seed, "finished", (), {"Ag": value, "loss": value}) for seed, value in enumerate(values)]
    missing = [Sample(label, seed, "failed") for seed in range(len(values), seeds)]
    return Row(label, label, label, False, {}, {}, (*made, *missing))


def test_differences_are_paired_by_seed_and_corrected_for_their_number() -> None:
    first, *others = rows = [row("a", 0.5, 0.6, 0.4), row("b", 0.55, 0.7, 0.47), row("c", 0.1, 0.9, 0.3)]
    found = paired(rows, first, measure("Ag"))
    assert [one.row.id for one in found] == ["b", "c"]
    assert [one.difference.mean for one in found] == pytest.approx([100 * 0.22 / 3, 100 * -0.2 / 3])
    assert [one.seeds for one in found] == [3, 3]
    raw = [
        float(stats.ttest_rel(*(list(each.by_seed("Ag").values()) for each in (one, first))).pvalue) for one in others
    ]
    assert [one.difference.p for one in found] == pytest.approx(holm(raw))
    assert found[0].difference.p == pytest.approx(2 * raw[0])


def test_differences_from_a_chosen_row_are_corrected_for_all_pairs_it_could_have_been_in() -> None:
    rng = np.random.default_rng(0)
    cases = [row(name, *values) for name, values in zip("abcd", rng.normal(0.8, 0.01, (4, 5)), strict=True)]
    baseline = replace(row("base", *rng.normal(0.8, 0.01, 5)), baseline=True)
    first, of = best_rows(cases, measure("Ag"))[0], measure("Ag")
    raw = [one.difference.p for one in (paired([first, other], first, of)[0] for other in cases if other is not first)]
    found = [one.difference.p for one in paired(cases, first, of, chosen=True)]
    assert found == pytest.approx(holm(raw, 6)), "pairs of four cases"
    assert min(found) == pytest.approx(min(1, 6 * min(raw)))
    beside = paired([*cases, baseline], first, of, chosen=True)
    assert [one.difference.p for one in beside] == pytest.approx(holm([*raw, _p(baseline, first)], 10)), "four more"
    alone = paired([cases[0], baseline], cases[0], of, chosen=True)
    assert alone[0].difference.p == pytest.approx(_p(baseline, cases[0])), "of one case nothing was chosen"


def _p(one: Row, other: Row) -> float:
    return float(stats.ttest_rel(*(list(each.by_seed("Ag").values()) for each in (one, other))).pvalue)


def test_rows_that_are_equal_in_truth_seldom_differ_significantly_from_the_winner() -> None:
    """In 400 reports on ten equal cases with five seeds: 5 % at most, and the deviation is 1.1 %."""
    rng, of, wrong = np.random.default_rng(1), measure("Ag"), 0
    for values in nonempty(rng.normal(0.8, 0.01, (400, 10, 5))):
        rows = [row(str(number), *each, seeds=5) for number, each in enumerate(values)]
        winner = rows[int(values.mean(1).argmax())]
        wrong += any(one.difference.p < 0.05 for one in paired(rows, winner, of, chosen=True))
    assert wrong <= 0.05 * 400


def test_holm_is_as_in_its_paper() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.01, 0.04], tests=5) == pytest.approx([0.05, 0.16]), "two of five tests"
    assert holm([]) == []


def test_the_best_is_of_rows_without_missing_seeds_and_of_metrics_that_can_be_compared() -> None:
    rows = [row("a", 0.5, 0.6), row("b", 0.9), row("c", 0.5, 0.6), row("d", 0.1, 0.2)]
    assert [one.id for one in best_rows(rows, measure("Ag"))] == ["a", "c"]
    assert best_rows(rows, measure("loss")) == []
    close = [row("a", 0.1, 0.2), row("b", 0.15, 0.15), row("c", 0.15, 0.14999)]
    assert close[0].spread("Ag") != close[1].spread("Ag")
    assert [one.id for one in best_rows(close, measure("Ag"))] == ["a", "b"]
    assert best_rows(rows[:1], measure("Ag")) == []
    less = replace(measure("Ag"), unit=replace(measure("Ag").unit, less=True))
    assert [one.id for one in best_rows(rows, less)] == ["d"]


def test_a_difference_of_nothing_has_no_sign() -> None:
    assert [measure("Ag").signed(value) for value in (0.04, -0.04, 0.0, 12.5, -0.1)] == [
        *("0.0", "0.0", "0.0", "+12.5", "−0.1")
    ]
