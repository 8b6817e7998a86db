"""Tables of papers: what stands behind a figure, and what is made of it."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from platform.reproduce import main  # type: ignore[import-not-found]

import numpy as np
import pytest

from dashboards.figures import LEAKED, PERPLEXITY, Cell, Cost, Origin, Reproduction, cost
from dashboards.paired import Difference, above_unigram, difference, differs, order, p_value
from dashboards.reproduction import markdown
from dashboards.reproduction_csv import read_csv, table_csv
from dashboards.trial import Outcome
from fedtext.errors import UserError
from fedtext.state.checkpoint import Checkpoints, history
from sweeps.coverage import BEGIN, END, _extent, coverage
from sweeps.results import named
from tests import ROOT
from tests.commands import Forked
from tests.loops import nonempty
from tests.planned import rows
from tune_spaces import papers
from tune_spaces.papers import Scale
from tune_spaces.papers.notes import not_run, pairs, personalization_notes, training_notes

KTEPS = papers.load("kteps")


PRINTED = [(number, scene) for number in KTEPS.tables for scene in KTEPS.scenes if (number, scene) != ("8", "IYY")]


@pytest.mark.parametrize(("number", "scene"), PRINTED)
def test_behind_every_figure_stands_an_experiment(number: str, scene: str) -> None:
    found = papers.tables(KTEPS, [number], scene, ())[number]
    for name, cases in nonempty(papers.cases(KTEPS, found, scene, Scale(), 2, {})):
        assert [case.experiment.seed for case in cases] == [0, 1]
        assert set(found.rows[name].paper[scene]) <= set(found.read)
        rounds = {"FDU": 50, "IYY": 20}[scene]
        assert all(nonempty(case.experiment.training.rounds == rounds for case in cases))
        readings = {*cases[0].experiment.evaluation.personalize.variants(), "Ag"}
        assert set(found.read.values()) <= readings | {"Ap"}


def test_a_figure_that_stands_in_several_tables_is_run_once() -> None:
    made = {
        n: dict(papers.cases(KTEPS, KTEPS.tables[n], "FDU", Scale(), 1, {})) for n in ("2", "3", "4", "5", "6", "7")
    }
    kteps = {made["2"]["KTEPS"][0].id, made["3"]["KTEPS"][0].id}
    assert kteps == {made["4"]["lambda1=0.01 lambda2=0.01"][0].id}
    assert made["5"]["KTEPS"][0].id == made["6"]["KTEPS"][0].id
    assert made["2"]["KTEPS*"][0].id == made["7"]["d1=2 d2=150"][0].id
    assert len({cases[0].id for rows in made.values() for cases in rows.values()}) == 18 + 8 + 7 + 2


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


def test_a_table_says_how_often_ap_was_evaluated() -> None:
    def said(number: str, **changes: object) -> list[str]:
        table = papers.tables(KTEPS, [number], "FDU", ())[number]
        return personalization_notes(table, dict(papers.cases(KTEPS, table, "FDU", Scale(), 1, changes)))

    mean = "Ap: the mean of n_Z = 25 accuracies, after every z = 1 of 25 steps of fine-tuning (equation 16)."
    assert said("3") == said("5") == [mean]
    assert said("2") == []
    assert said("3", **{"evaluation.personalize.every": 5}) == [
        mean.replace("25 acc", "5 acc").replace("z = 1", "z = 5")
    ]
    (one,) = said("3", **{"evaluation.personalize.every": 25})
    assert one.startswith("Ap: one accuracy, after every z = 25 of 25 steps")


def test_table_8_has_no_projections_and_no_diversity() -> None:
    for name, (case,) in nonempty(papers.cases(KTEPS, KTEPS.tables["8"], "FDU", Scale(), 1, {})):
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
    said, first, *others = csv.DictReader(io.StringIO(table_csv(made)))
    assert (said["part"], said["text"]) == ("about", "Said.")
    assert float(first.pop("deviation")) == pytest.approx(0.4)
    assert list(first.values()) == ["mean", "A", "Ag", "%", "85.0", "84.0", "3", "83.6 84 84.4", ""]
    assert [line["part"] for line in others] == ["mean", "mean", "mean", "client", "cost", "cost", "cost"]


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
        "Ag: of 6 pairs of rows that the paper orders, 2 in the paper's order (0 significant), 1 equal here, "
        "3 inverted (2 significant, 1 within noise).",
        "- Inverted, significant, beyond the paper's own noise (2.1 points of a difference): "
        "A - B (+2.5, here -2.1 ± 0.1, p < 0.001).",
        "- Inverted, significant, within the noise of two of the paper's values: "
        "A - C (+1.0, here -2.1 ± 0.1, p < 0.001).",
        "- Inverted, within noise: A - D (+4.0, here -1.0 ± 3.2, p = 0.79).",
    ]
    single = replace(made, cells=[Cell("A", "Ag", 85.0, [84.0]), Cell("B", "Ag", 83.0, [86.0])])
    assert order(single, "Ag") == [
        "Ag: of 1 pairs of rows that the paper orders, 0 in the paper's order, 1 inverted.",
        "- Inverted, of one seed: no test is possible: A - B (+2.0, here -2.0).",
    ]
    (said,) = order(replace(made, cells=cells[2:]), "Ag")
    assert said.endswith("1 in the paper's order (0 significant), 0 inverted.")
    assert order(replace(made, cells=cells[:1]), "Ag") == []


def test_the_paired_t_test_is_that_of_the_textbook() -> None:
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), t = 3.46 on two degrees of freedom, whose distribution
    function is 1/2 + t / (2 sqrt(2 + t^2)); however far the seeds themselves lie apart."""
    found = difference(Cell("A", "Ag", None, [11.0, 52.0, 33.0]), Cell("B", "Ag", None, [10.0, 50.0, 30.0]))
    t = 2 * 3**0.5
    assert found == Difference(2.0, pytest.approx(3**-0.5), pytest.approx(1 - t / (2 + t * t) ** 0.5))
    assert not found.significant, "p = 0.074"
    equal = difference(Cell("A", "Ag", None, [1.0, 2.0]), Cell("B", "Ag", None, [1.0, 2.0]))
    assert equal == Difference(0.0, 0.0, None)
    apart = difference(Cell("A", "Ag", None, [3.1, 4.2, 5.3]), Cell("B", "Ag", None, [1.1, 2.2, 3.3]))
    assert apart == Difference(pytest.approx(2.0), 0.0, None), "without spread there is no t, but for rounding"
    assert not apart.significant
    assert p_value(apart) == "no test"
    single = difference(Cell("A", "Ag", None, [1.0]), Cell("B", "Ag", None, [3.0]))
    assert single == Difference(-2.0, None, None)
    assert not single.significant


def test_a_table_says_what_was_tested_and_what_was_not_run() -> None:
    cells = [Cell("FedAvg", "Ag", 85.0, [80.0, 82.0, 84.0]), Cell("KTEPS", "Ag", 86.0, [81.0, 83.1, 85.2])]
    made = Reproduction("T", 1.5, cells, [], {}, ["Said."], [("KTEPS", "FedAvg")], missing=["LG.", "FS"])
    text = markdown(made)
    assert "Rows of the table that were not run: LG., FS." in text
    assert "|  | Ag | p |" in text
    assert "| KTEPS - FedAvg | **+1.1 ± 0.1** | 0.003 |" in text
    assert "paired t test over 3 seeds, not corrected" in text
    single = replace(made, cells=[replace(cell, seeds=cell.seeds[:1]) for cell in cells], missing=[])
    text = markdown(single)
    assert "were not run: none." in text
    assert "| KTEPS - FedAvg | +1.0 |" in text
    assert "One seed: no test is possible." in text
    assert "±" not in text


def test_models_that_word_counts_beat_are_no_evidence() -> None:
    cells = [
        Cell("FedAvg", "perplexity", 90.0, [99.0, 101.0], PERPLEXITY),
        Cell("FedAtt", "perplexity", 80.0, [94.0, 96.0], PERPLEXITY),
        Cell("unigram", "perplexity", None, [98.0, 98.0], PERPLEXITY),
    ]
    made = Reproduction("T", 5, cells, [], {}, [])
    assert "1 of 2 models (FedAvg) are NOT BELOW THE UNIGRAM ROW in perplexity" in above_unigram(made)
    assert above_unigram(made) in markdown(made)
    worse = [*cells[:2], replace(cells[2], seeds=[50.0, 50.0])]
    assert above_unigram(replace(made, cells=worse)).startswith("All 2 models are NOT BELOW")
    better = [*cells[:2], replace(cells[2], seeds=[150.0, 150.0])]
    assert above_unigram(replace(made, cells=better)) == "All 2 models are below the unigram row in perplexity."
    assert above_unigram(replace(made, cells=cells[:2])) == ""


def test_each_model_is_compared_with_the_word_counts_of_its_own_texts() -> None:
    """Also where names have commas, and one begins as another does."""
    models = {"FedAvg": 420.0, "FedAvg, small": 590.0, "FedAtt, small": 610.0}
    cells = [Cell(row, "perplexity", None, [value], PERPLEXITY) for row, value in models.items()]
    counted = {"unigram of FedAvg": 430.0, "unigram of FedAvg, small, FedAtt, small": 600.0}
    counts = [Cell(row, "perplexity", None, [value], PERPLEXITY) for row, value in counted.items()]
    said = above_unigram(Reproduction("T", 5, [*cells, *counts], [], {}, []))
    assert said.startswith("1 of 3 models (FedAtt, small) are NOT BELOW")


def test_only_phrases_in_capitals_stand_in_the_coverage() -> None:
    about = [
        "CHANGED: training.rounds=5.",
        "KTEPS, KTEPS std. and KTEPS* add noise: of these the paper does not say it.",
        "ANOTHER DATA SET: a smaller one.",
        "A PART OF THE CORPUS where train is a tenth.",
        "Said: in a low voice.",
    ]
    extent = _extent(Reproduction("T", 5, [], [], {}, about))
    assert extent == "CHANGED: training.rounds=5. ANOTHER DATA SET. A PART OF THE CORPUS."


def test_rows_are_tested_against_fedavg_or_the_first() -> None:
    found = papers.tables(KTEPS, ["2"], "FDU", ["FedAvg", "KTEPS", "Indiv."])["2"]
    assert set(pairs(KTEPS, found)) == {("KTEPS", "FedAvg"), ("Indiv.", "FedAvg")}
    alone = KTEPS.tables["7"]
    assert {other for _, other in pairs(KTEPS, alone)} == {next(iter(alone.rows))}
    fedatt = papers.load("fedatt")
    table = papers.tables(fedatt, ["II"], "PTB", ())["II"]
    against = {one: other for one, other in pairs(fedatt, table) if other.startswith("FedAvg")}
    assert against["FedAtt spectral C=0.5"] == "FedAvg C=0.5"
    assert "FedSGD" not in against, "all clients take part in its rounds"
    assert not_run(table, "PTB", {"FedSGD", "FedAvg C=0.1", "FedAtt C=0.1", "FedAtt C=0.5"}) == [
        *("FedAtt uniform C=0.1 (not in the paper)", "FedAtt spectral C=0.1 (not in the paper)", "FedAvg C=0.5"),
        *("FedAtt uniform C=0.5 (not in the paper)", "FedAtt spectral C=0.5 (not in the paper)"),
    ]


def test_how_rows_were_trained_is_said() -> None:
    table = papers.tables(papers.load("fedatt"), ["II"], "PTB", (), ["FedSGD", "Fed* C=0.1"])["II"]
    changes = {"training.rounds": 10, "training.optimizer.lr": 0.3}
    first, other = training_notes(dict(papers.cases(papers.load("fedatt"), table, "PTB", Scale(), 1, changes)))
    assert first == (
        "Training, where nothing else is said: SGD, lr 0.3, momentum 0.5, batches of 10, 5 local epochs, 10 rounds, a "
        "share of 0.1 of the clients in each round."
    )
    assert other.startswith(
        "Training of FedSGD: SGD, lr 0.3, momentum 0.5, batches of 10, 1 local epoch, 10 rounds, all"
    )


def test_a_table_is_written_anew_from_its_csv(tmp_path: Path) -> None:
    cells = [
        Cell("FedAvg", "Ag", 85.1, [1 / 3, None]),
        Cell("KTEPS", "Ag", 85.7, []),
        Cell("FS", "Ag", 99.0, [2.0, 3.0], LEAKED),  # the paper has 85.6
        Cell("unigram", "Ag", None, [4.0, 4.0]),
    ]
    costs = {"FedAvg": Cost(9.0, None, 1e6), "FS": Cost(1.0, 2.0, 3.0)}
    origin = Origin("kteps", "FDU", "2", "python -m platform.reproduce kteps 2 --data FOLDER")
    client = [Cell("dvd", "FedAvg", 87.5, [70.0, 71.0])]
    made = Reproduction("", 0.0, cells, client, costs, ["One.", "Two, 2."], shown={"FS": "# A\n\n| b |"}, origin=origin)
    path = tmp_path / "kteps-FDU-table2.csv"
    path.write_text(table_csv(made))
    read = read_csv(path)
    assert read.cells[0].seeds == [pytest.approx(1 / 3, rel=1e-9), None]
    assert replace(read, cells=[replace(read.cells[0], seeds=cells[0].seeds), *read.cells[1:]]) == made
    assert main(["--render", str(path)]) == 0
    text = path.with_suffix(".md").read_text()
    assert text.startswith(
        "# KTEPS, Li et al. 2021: table 2, Model aggregation, FDU\n\nOne.  \nTwo, 2.  \nCommand: `pyt"
    )
    assert "that were not run: Indiv., ASP., FedFu." in text
    assert path.with_suffix(".png").stat().st_size > 5_000
    assert "| FS | 85.6 | 2.5" in text
    before = path.read_text()
    assert read_csv(path).cells[2] == replace(cells[2], paper=85.6)
    (tmp_path / "README.md").write_text(f"Above.\n{BEGIN}\nold\n{END}\nBelow.\n")
    assert main(["--render", str(path)]) == 0
    assert path.read_text() == before
    written = (tmp_path / "README.md").read_text()
    assert written == f"Above.\n{BEGIN}\n{coverage(tmp_path)}\n{END}\nBelow.\n"
    assert "| kteps | table 2 | FDU | 2 of 10 | 2 | One. | [kteps-FDU-table2](kteps-FDU-table2.md) |" in written
    assert "- kteps: table 3, table 4, table 5, table 6, table 7, table 8 on FDU; table 2, table 3" in written
    assert "- rrldp: table 1, table 3" in written


KEPT = ROOT / "docs" / "reproductions"


def test_the_documented_coverage_is_that_of_the_files() -> None:
    assert f"{BEGIN}\n{coverage(KEPT)}\n{END}" in (KEPT / "README.md").read_text(), "platform.reproduce --render"


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.csv")), ids=lambda path: path.stem)
def test_the_tables_that_are_kept_are_those_of_their_csvs(path: Path) -> None:
    """And of the paper's file, whose rows they list that were not run: otherwise ``platform.reproduce --render``."""
    assert path.with_suffix(".md").read_text() == f"{markdown(named(read_csv(path)))}\n![]({path.stem}.png)\n"
    assert path.with_suffix(".png").is_file()


@pytest.mark.parametrize("text", ["part,row\nmean,A\n", "", "part,row,column,unit,paper,ours\nmean,A,Ag,%,85.0,84.0\n"])
def test_another_csv_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(UserError, match=r"other\.csv is no table that this command has written, or one of an earlier"):
        main(["--render", str(tmp_path / "other.csv")])
    with pytest.raises(UserError, match=r"none\.csv cannot be read"):
        main(["--render", str(tmp_path / "none.csv")])


@pytest.mark.parametrize("words", [[], ["kteps"], ["kteps", "2", "--render", "a.csv"]])
def test_tables_or_files_are_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "name a paper and its tables, or --render and CSV files" in capsys.readouterr().err


def test_costs_are_means_over_rounds() -> None:
    made = rows(3)
    for record in made:
        record.metrics |= {"train_seconds": 2.0 * record.round}
    outcome = Outcome("finished", tuple(made))
    assert cost([outcome]) == Cost(4.0, None, 0.0)
    for record in made:
        record.metrics |= {"train_cpu_seconds": 1.0 * record.round, "bytes_per_client": 6.0}
    assert cost([outcome, outcome]) == Cost(4.0, 2.0, 6.0)
    assert cost([]) is None


@pytest.mark.ray
@pytest.mark.slow
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
    for said in ("SCALED DOWN: 0.04", 'CHANGED: corpus={"name": "demo"', "over 2 seeds", "GloVe", "Ap: paper"):
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
