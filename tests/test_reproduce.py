"""Tables of papers: what stands behind a figure, and what is made of it."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dashboards.figures import Cell, Cost, Reproduction, cost, differs, order
from dashboards.reproduction import markdown, table_csv
from dashboards.trial import Outcome
from fedtext.checkpoint import Checkpoints, history
from fedtext.errors import UserError
from tests.commands import Forked
from tests.planned import rows
from tune_spaces import papers
from tune_spaces.papers import Scale

KTEPS = papers.load("kteps")


PRINTED = [(number, scene) for number in KTEPS.tables for scene in KTEPS.scenes if (number, scene) != ("8", "IYY")]


@pytest.mark.parametrize(("number", "scene"), PRINTED)
def test_behind_every_figure_stands_an_experiment(number: str, scene: str) -> None:
    found = papers.tables(KTEPS, [number], scene, ())[number]
    for name, cases in papers.cases(KTEPS, found, scene, Scale(), 2, {}):
        assert [case.experiment.seed for case in cases] == [0, 1]
        assert set(found.rows[name].paper[scene]) <= set(found.read)
        rounds = {"FDU": 50, "IYY": 20}[scene]
        assert all(case.experiment.training.rounds == rounds for case in cases)
        readings = {*cases[0].experiment.evaluation.personalize.readings(), "Ag"}
        assert set(found.read.values()) <= readings | {"Ap"}


def test_a_figure_that_stands_in_several_tables_is_run_once() -> None:
    made = {
        n: dict(papers.cases(KTEPS, KTEPS.tables[n], "FDU", Scale(), 1, {})) for n in ("2", "3", "4", "5", "6", "7")
    }
    kteps = {made["2"]["KTEPS"][0].id, made["3"]["KTEPS"][0].id}
    assert kteps == {made["4"]["lambda1=0.01 lambda2=0.01"][0].id}
    assert made["5"]["KTEPS"][0].id == made["6"]["KTEPS"][0].id
    assert made["2"]["KTEPS*"][0].id == made["7"]["d1=2 d2=150"][0].id
    assert len({cases[0].id for rows in made.values() for cases in rows.values()}) == 15 + 8 + 7 + 2


@pytest.mark.parametrize("scene", KTEPS.scenes)
def test_kteps_star_differs_from_kteps_in_the_projection_alone(scene: str) -> None:
    table = papers.tables(KTEPS, ["3"], scene, ())["3"]
    made = {row: cases[0].experiment for row, cases in papers.cases(KTEPS, table, scene, Scale(), 1, {})}
    for which in ("", " own"):
        kteps, star = made[f"KTEPS{which}"], made[f"KTEPS*{which}"]
        assert [mechanism.name for mechanism in star.uplink] == ["project", "gaussian"]
        assert star.model_copy(update={"uplink": kteps.uplink}) == kteps
        assert kteps.own_rows == bool(which)
    personalize = made["KTEPS"].evaluation.personalize
    assert personalize is not None
    assert (personalize.steps, personalize.every) == (25, 1), "Z and z of equation 16"


def test_table_8_has_no_projections_and_no_diversity() -> None:
    for name, (case,) in papers.cases(KTEPS, KTEPS.tables["8"], "FDU", Scale(), 1, {}):
        made = case.experiment.method.model_dump()
        assert (made["projection"], made["lambda2"]) == (False, 0.0), name
        assert made["architecture"] == {"A": "classifier", "B": "encoder", "C": "everything"}[name[0]]


def test_what_makes_a_row_is_not_to_be_set() -> None:
    table = KTEPS.tables["4"]
    with pytest.raises(UserError, match=r"method\.lambda1 is not to be set for KTEPS, whose method is what"):
        dict(papers.cases(KTEPS, table, "FDU", Scale(), 1, {"method.lambda1": 0.05}))
    with pytest.raises(UserError, match=r"evaluation\.personalize is not to be set for KTEPS, whose evaluation\.pers"):
        dict(papers.cases(KTEPS, KTEPS.tables["5"], "FDU", Scale(), 1, {"evaluation.personalize": None}))
    dict(papers.cases(KTEPS, table, "FDU", Scale(), 1, {"evaluation.personalize.every": 25, "model.hidden": 8}))
    for key, value in (("training", {"rounds": "many"}), ("training.rounds", "abc"), ("corpus.share", None)):
        with pytest.raises(UserError, match=key.partition(".")[0]):
            dict(papers.cases(KTEPS, table, "FDU", Scale(0.1), 1, {key: value}))
    ((_, (demo,)), *_) = papers.cases(KTEPS, table, "FDU", Scale(0.1), 1, {"corpus": "demo"})
    assert (demo.experiment.corpus.name, demo.experiment.corpus.share) == ("demo", 0.1)


def test_a_scale_shortens_rounds_and_texts_and_nothing_else() -> None:
    row = papers.tables(KTEPS, ["2"], "FDU", ["KTEPS"])["2"]
    ((_, (whole,)),) = papers.cases(KTEPS, row, "FDU", Scale(), 1, {})
    ((_, (short,)),) = papers.cases(KTEPS, row, "FDU", Scale(0.1), 1, {})
    assert (short.experiment.training.rounds, short.experiment.corpus.share) == (5, 0.1)
    assert short.id != whole.id
    ((_, (both,)),) = papers.cases(KTEPS, row, "FDU", Scale(0.1), 1, {"training.rounds": 20, "corpus.share": 0.5})
    assert (both.experiment.training.rounds, both.experiment.corpus.share) == (2, 0.05)
    restored = short.experiment.model_copy(
        update={
            "training": short.experiment.training.model_copy(update={"rounds": 50}),
            "corpus": short.experiment.corpus.model_copy(update={"share": 1.0}),
        }
    )
    assert restored == whole.experiment


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UserError, match="there is no paper ktep: choose fedatt, fedevocab, kteps, rrldp"):
        papers.load("ktep")
    with pytest.raises(UserError, match="no table 1 of results: choose 2, 3, 4, 5, 6, 7, 8"):
        papers.tables(KTEPS, ["2", "1"], "FDU", ())
    with pytest.raises(UserError, match="table 8 has nothing about IYY"):
        papers.tables(KTEPS, ["8"], "IYY", ())
    for word in ("seeds=4", "tune.scheduler=asha"):
        with pytest.raises(UserError, match=r"--set: (seeds|tune\.scheduler) is not to be set here"):
            papers.changes(["training.rounds=3", word])
    with pytest.raises(UserError, match=r"--methods: table 5 has no FedAvg: choose among KTEPS, KTEPS\*"):
        papers.tables(KTEPS, ["5"], "FDU", ["FedAvg"])
    with pytest.raises(UserError, match="--methods: table 2 and table 3 has no FedPro: choose among Indiv"):
        papers.tables(KTEPS, ["2", "3"], "FDU", ["FedAvg", "FedPro"])
    with pytest.raises(UserError, match="table 2 has none of FedPer: leave it out"):
        papers.tables(KTEPS, ["2", "3"], "FDU", ["FedPer"])


def test_a_system_may_stand_in_one_of_several_tables_only() -> None:
    found = papers.tables(KTEPS, ["2", "3"], "FDU", ["FedAvg", "FedPer"])
    assert {number: list(table.rows) for number, table in found.items()} == {"2": ["FedAvg"], "3": ["FedAvg", "FedPer"]}


def test_a_report_has_differences_in_bold_where_noise_does_not_explain_them() -> None:
    cells = [
        Cell("A", "Ag", 85.0, [83.6, 84.0, 84.4]),
        Cell("B", "Ag", 84.0, [86.4, 87.0, 87.6]),  # 1.5 + 4.3 * 0.6 / sqrt(3) = 2.99 from the paper's, and not more
        Cell("C", "Ag", None, [50.0]),
        Cell("D", "Ag", 83.0, []),
    ]
    assert [differs(cell, 1.5) for cell in cells] == [False, True, False, False]
    assert not differs(cells[1], 1.52)
    made = Reproduction("T", 1.5, cells, [Cell("dvd", "A", 80.0, [80.9, 81.1])], {"A": Cost(2.0, 3.0, 5e6)}, ["Said."])
    text = markdown(made)
    assert "| A | 85.0 | 84.0 ± 0.4 | -1.0 | 2.0 | 3.0 | 5.0 |" in text
    assert "| B | 84.0 | 87.0 ± 0.6 | **+3.0** |" in text
    assert "| dvd | 80.0 / 81.0 ± 0.1 |" in text
    assert "times FedAvg" not in text
    lines = list(csv.DictReader(io.StringIO(table_csv(made))))
    assert float(lines[0].pop("deviation")) == pytest.approx(0.4)
    assert list(lines[0].values()) == ["mean", "A", "Ag", "%", "85.0", "84.0", "3", "83.6000 84.0000 84.4000", "Said."]
    assert len(lines) == 5


def test_costs_stand_beside_those_of_fedavg() -> None:
    cells = [Cell("FedAvg", "Ag", 85.0, [84.0]), Cell("KTEPS", "Ag", 85.0, [84.0]), Cell("New", "Ag", None, [84.0])]
    costs = {"FedAvg": Cost(9.0, 4.0, 1e6), "KTEPS": Cost(1.0, 6.0, 2e6), "New": Cost(1.0, None, 2e6)}
    text = markdown(Reproduction("T", 1.5, cells, [], costs, ["Said."]))
    assert "| s / round | CPU s | times FedAvg | MB / client |" in text
    assert "| KTEPS | 85.0 | 84.0 | -1.0 | 1.0 | 6.0 | 1.50 | 2.0 |" in text
    assert "| New |  | 84.0 |  | 1.0 |  |  | 2.0 |" in text


def test_what_runs_have_written_stands_below_the_figures() -> None:
    cells, shown = [Cell("A", "Ag", None, [70.0])], {"A": "# Texts of dvd\n\nGood **film**.\n"}
    text = markdown(Reproduction("T", 1.5, cells, [], {}, ["Said."], shown=shown))
    assert text.endswith("\n\n## A: Texts of dvd\n\nGood **film**.\n")


def test_turned_pairs_are_told_from_chance_seed_by_seed() -> None:
    cells = [
        Cell("A", "Ag", 85.0, [80.0, 84.0, 88.0]),
        Cell("B", "Ag", 82.5, [82.0, 86.1, 90.2]),  # always about two points above A, however far the seeds lie apart
        Cell("C", "Ag", 84.0, [82.0, 86.1, 90.2]),
        Cell("D", "Ag", 81.0, [87.0, 84.0, 84.0]),
    ]
    made = Reproduction("T", 1.5, cells, [], {}, ["Said."])
    # B - A = 2.0, 2.1, 2.2 and D - A = 7, 0, -4, whose deviation is 5.6
    assert order(made, "Ag") == [
        "Ag: 3 of 6 pairs of rows stand in the other order than in the paper (± standard error).",
        "- More than chance in the paper and here: A - B (+2.5, here -2.1 ± 0.1).",
        "- More than chance here, and within the noise of two of the paper's figures (2.1 points): "
        "A - C (+1.0, here -2.1 ± 0.1).",
        "- No more than chance here, or of a single seed: A - D (+4.0, here -1.0 ± 3.2).",
    ]
    single = replace(made, cells=[Cell("A", "Ag", 85.0, [84.0]), Cell("B", "Ag", 83.0, [86.0])])
    assert order(single, "Ag")[1] == "- No more than chance here, or of a single seed: A - B (+2.0, here -2.0)."
    assert order(replace(made, cells=cells[2:]), "Ag") == ["Ag: all 2 rows stand in the paper's order."]


def test_costs_are_means_over_rounds() -> None:
    made = rows(3)
    for row in made:
        row["metrics"] |= {"train_seconds": 2.0 * row["round"]}
    outcome = Outcome("finished", tuple(made))
    assert cost([outcome]) == Cost(4.0, None, 0.0)
    for row in made:
        row["metrics"] |= {"train_cpu_seconds": 1.0 * row["round"], "bytes_per_client": 6.0}
    assert cost([outcome, outcome]) == Cost(4.0, 2.0, 6.0)
    assert cost([]) is None


@pytest.mark.ray
def test_tables_share_trials_and_come_out_as_files(tmp_path: Path) -> None:
    tiny = [
        "corpus={name: demo, clients: 3, train: 100, test: 10}",
        "model={embedding: {dim: 4}, hidden: 4, head: {hidden: 4}}",
        "training.stack=1",
        "evaluation.personalize.steps=2",
        "resources.clients_per_actor=3",
    ]
    scale = ["--scale", "0.04", "--methods", "KTEPS", "--out", str(tmp_path), "--set", *tiny]
    done = Forked(tmp_path, "reproduce", "kteps", "3", "--seeds", "2", *scale).wait()
    assert done.returncode == 0, done.stderr
    assert "0 of 2 trials are there already" in done.stdout
    (file,) = tmp_path.glob("kteps-FDU-table3-scale0.04-*.md")
    report = file.read_text()
    assert report.startswith("# KTEPS, Li et al. 2021: table 3")
    for said in ("SCALED DOWN: 0.04", 'CHANGED: corpus={"name": "demo"', "over 2 seed(s)", "GloVe", "Ap: paper"):
        assert said in report
    (line,) = [line for line in report.splitlines() if line.startswith("| KTEPS |")]
    assert line.count("±") == 1
    assert file.with_suffix(".png").stat().st_size > 5_000
    (artifact,) = tmp_path.glob("mlartifacts/*/artifacts/reproductions/*.csv")
    assert artifact.read_text() == Path(str(file).replace(".md", ".csv")).read_text()
    scale.insert(scale.index("KTEPS"), "ASP.")  # whose network depends on the number of clients
    again = Forked(tmp_path, "reproduce", "kteps", "2", *scale).wait()  # a seed less of another table
    assert again.returncode == 0, again.stderr
    assert "1 of 2 trials are there already" in again.stdout
    assert len(list(tmp_path.glob("kteps-FDU-table2-*.png"))) == 1
    for state in tmp_path.glob("runs/*/*/checkpoint"):
        Checkpoints(state, "of other texts").save(np.zeros(1, np.float32), {}, history(state))
    refused = Forked(tmp_path, "reproduce", "kteps", "2", *scale).wait()
    assert refused.returncode == 2
    assert "was made from other data or by another version of this code: give the --data" in refused.stderr
