"""``platform.reproduce``: its trials, the tables that it writes and keeps, and the list of what they cover."""

from dataclasses import replace
from pathlib import Path
from platform.reproduce import main  # type: ignore[import-not-found]

import numpy as np
import pytest

from dashboards.figures import LEAKED, Cell, Cost, Origin, Reproduction
from dashboards.reproduction import markdown
from dashboards.reproduction_csv import read_csv, table_csv
from fedtext.errors import UserError
from fedtext.state.checkpoint import Checkpoints, history
from sweeps.coverage import BEGIN, END, _extent, coverage
from sweeps.results import named
from tests import ROOT
from tests.commands import Forked


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
