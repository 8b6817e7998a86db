"""Tables of papers: what stands behind a figure, and what is made of it."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.groups import Spread
from dashboards.reproduction import Cell, Cost, Reproduction, cost, differs, markdown, order, percent, table_csv
from dashboards.trial import Outcome
from fedtext.errors import UserError
from tests.commands import command
from tests.planned import rows
from tune_spaces import papers
from tune_spaces.papers import Scale

KTEPS = papers.load("kteps")


PRINTED = [(number, scene) for number in KTEPS.tables for scene in KTEPS.scenes if (number, scene) != ("8", "IYY")]


@pytest.mark.parametrize(("number", "scene"), PRINTED)
def test_behind_every_figure_stands_an_experiment(number: str, scene: str) -> None:
    found = papers.tables(KTEPS, [number], scene, ())[number]
    for name, cases in papers.cases(KTEPS, found.rows, scene, Scale(), 2, {}):
        assert [case.experiment.seed for case in cases] == [0, 1]
        assert set(found.rows[name].paper[scene]) <= set(found.read)
        rounds = {"FDU": 50, "IYY": 20}[scene]
        assert all(case.experiment.training.rounds == rounds for case in cases)
        readings = {*cases[0].experiment.evaluation.personalize.readings(), "Ag"}
        assert set(found.read.values()) <= readings | {"Ap"}


def test_a_figure_that_stands_in_several_tables_is_run_once() -> None:
    made = {
        n: dict(papers.cases(KTEPS, KTEPS.tables[n].rows, "FDU", Scale(), 1, {})) for n in ("2", "3", "4", "5", "7")
    }
    kteps = {made["2"]["KTEPS"][0].id, made["3"]["KTEPS"][0].id, made["5"]["KTEPS"][0].id}
    assert kteps == {made["4"]["lambda1=0.01 lambda2=0.01"][0].id}
    assert made["2"]["KTEPS*"][0].id == made["7"]["d1=2 d2=150"][0].id
    assert len({cases[0].id for rows in made.values() for cases in rows.values()}) == 12 + 8 + 7


def test_a_scale_shortens_rounds_and_texts_and_nothing_else() -> None:
    row = {"KTEPS": KTEPS.tables["2"].rows["KTEPS"]}
    ((_, (whole,)),) = papers.cases(KTEPS, row, "FDU", Scale(), 1, {})
    ((_, (short,)),) = papers.cases(KTEPS, row, "FDU", Scale(0.1), 1, {})
    assert (short.experiment.training.rounds, short.experiment.corpus.share) == (5, 0.1)
    assert short.id != whole.id
    restored = short.experiment.model_copy(
        update={
            "training": short.experiment.training.model_copy(update={"rounds": 50}),
            "corpus": short.experiment.corpus.model_copy(update={"share": 1.0}),
        }
    )
    assert restored == whole.experiment


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UserError, match="there is no paper ktep: choose kteps"):
        papers.load("ktep")
    with pytest.raises(UserError, match="no table 1 of results: choose 2, 3, 4, 5, 6, 7, 8"):
        papers.tables(KTEPS, ["2", "1"], "FDU", ())
    with pytest.raises(UserError, match="table 8 has nothing about IYY"):
        papers.tables(KTEPS, ["8"], "IYY", ())
    with pytest.raises(UserError, match="--set: seeds is not to be set here"):
        papers.changes(["training.rounds=3", "seeds=4"])
    with pytest.raises(UserError, match=r"--methods: table 5 has no FedAvg: choose among KTEPS, KTEPS\*"):
        papers.tables(KTEPS, ["5"], "FDU", ["FedAvg"])
    with pytest.raises(UserError, match="--methods: table 2 and 3 has no FedPro: choose among Indiv"):
        papers.tables(KTEPS, ["2", "3"], "FDU", ["FedAvg", "FedPro"])
    with pytest.raises(UserError, match="table 2 has none of FedPer: leave it out"):
        papers.tables(KTEPS, ["2", "3"], "FDU", ["FedPer"])


def test_a_system_may_stand_in_one_of_several_tables_only() -> None:
    found = papers.tables(KTEPS, ["2", "3"], "FDU", ["FedAvg", "FedPer"])
    assert {number: list(table.rows) for number, table in found.items()} == {"2": ["FedAvg"], "3": ["FedAvg", "FedPer"]}


def test_a_report_has_differences_in_bold_where_noise_does_not_explain_them() -> None:
    cells = [
        Cell("A", "Ag", 85.0, Spread(84.0, 0.4, 4)),
        Cell("B", "Ag", 84.0, Spread(86.2, 0.6, 4)),  # 1.5 + 2 * 0.6 / 2 = 2.1
        Cell("C", "Ag", None, Spread(50.0, None, 1)),
        Cell("D", "Ag", 83.0, None),
    ]
    assert [differs(cell, 1.5) for cell in cells] == [False, True, False, False]
    made = Reproduction(
        "T", 1.5, cells, [Cell("dvd", "A", 80.0, Spread(81.0, 0.1, 4))], {"A": Cost(2.0, 5e6)}, ["Said."]
    )
    text = markdown(made)
    assert "| A | 85.0 | 84.0 ± 0.4 | -1.0 | 2.0 |  | 5.0 |" in text
    assert "| B | 84.0 | 86.2 ± 0.6 | **+2.2** |" in text
    assert "| dvd | 80.0 / 81.0 ± 0.1 |" in text
    # 84.0 - 86.2 = -2.2, and the variance of the means 0.4^2 / 4 + 0.6^2 / 4 = 0.13
    assert order(made, "Ag") == [
        "Ag: 1 of 1 pairs of rows stand in the other order than in the paper (± standard error).",
        "- More than chance here, and within the paper's own 1.5 points: A - B (+1.0, here -2.2 ± 0.4).",
    ]
    cells = [
        Cell("A", "Ag", 85.0, Spread(84.0, 0.4, 4)),
        Cell("B", "Ag", 83.0, Spread(86.2, 0.6, 4)),
        Cell("C", "Ag", 82.0, Spread(85.0, None, 1)),
        Cell("D", "Ag", 81.0, Spread(84.1, 0.4, 4)),
    ]
    assert order(replace(made, cells=cells), "Ag") == [
        "Ag: 3 of 6 pairs of rows stand in the other order than in the paper (± standard error).",
        "- More than chance in the paper and here: A - B (+2.0, here -2.2 ± 0.4).",
        "- Within two standard errors here, or of a single seed: A - C (+3.0, here -1.0); "
        "A - D (+4.0, here -0.1 ± 0.3).",
    ]
    assert order(replace(made, cells=[cells[0], cells[0]]), "Ag") == ["Ag: all 2 rows stand in the paper's order."]
    lines = list(csv.DictReader(io.StringIO(table_csv(made))))
    assert list(lines[0].values()) == ["mean", "A", "Ag", "85.0", "84.0", "0.4", "4", "Said."]
    assert len(lines) == 5


def test_costs_and_percentages_are_means() -> None:
    outcome = Outcome(
        "finished", tuple(row | {"metrics": row["metrics"] | {"train_seconds": 2.0 * row["round"]}} for row in rows(3))
    )
    assert cost([outcome]) == Cost(4.0, 0.0)
    assert cost([]) is None
    assert percent([0.5, 0.7]) == Spread(pytest.approx(60.0), pytest.approx(14.1421, abs=1e-3), 2)
    assert percent([]) is None


@pytest.mark.ray
def test_tables_share_trials_and_come_out_as_files(tmp_path: Path) -> None:
    tiny = [
        "corpus={name: demo, clients: 3, train: 12, test: 10}",
        "model={embedding: {dim: 4}, hidden: 4, head: {hidden: 4}}",
        "training.stack=1",
        "evaluation.personalize.steps=2",
    ]
    scale = ["--scale", "0.04", "--methods", "KTEPS", "--out", str(tmp_path), "--set", *tiny]
    done = command(tmp_path, "reproduce", "kteps", "5", "--seeds", "2", *scale)
    assert done.returncode == 0, done.stderr
    assert "0 of 2 trials are there already" in done.stdout
    (file,) = tmp_path.glob("kteps-FDU-table5-scale0.04-*.md")
    report = file.read_text()
    assert report.startswith("# KTEPS, Li et al. 2021: table 5")
    for said in ("SCALED DOWN: 0.04", 'CHANGED: corpus={"name": "demo"', "over 2 seed(s)", "GloVe", "mu=0.001: paper"):
        assert said in report
    (line,) = [line for line in report.splitlines() if line.startswith("| KTEPS ")]
    assert line.count("±") == 4
    assert file.with_suffix(".png").stat().st_size > 5_000
    (artifact,) = tmp_path.glob("mlartifacts/*/artifacts/reproductions/*.csv")
    assert artifact.read_text() == Path(str(file).replace(".md", ".csv")).read_text()
    scale.insert(scale.index("KTEPS"), "ASP.")  # whose network depends on the number of clients
    again = command(tmp_path, "reproduce", "kteps", "2", *scale)  # a seed less of another table
    assert again.returncode == 0, again.stderr
    assert "1 of 2 trials are there already" in again.stdout
    assert len(list(tmp_path.glob("kteps-FDU-table2-*.png"))) == 1
    for state in tmp_path.glob("runs/*/*/checkpoint/*/state.json"):  # as if the texts had been others
        state.write_text(state.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    refused = command(tmp_path, "reproduce", "kteps", "2", *scale)
    assert refused.returncode == 2
    assert "was made from other data or by another version of this code: remove it" in refused.stderr
