"""``platform.reproduce``: its trials, the tables that it writes and keeps, and the list of what they cover."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from platform.reproduce import main  # type: ignore[import-not-found]
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from dashboards.figures import LEAKED, Cell, Cost, Origin, Reproduction
from dashboards.reproduction import markdown
from dashboards.reproduction_csv import read_csv, table_csv
from fedtext.errors import UserError
from fedtext.state.checkpoint import Checkpoints, history
from sweeps.coverage import BEGIN, END, _extent, coverage, update
from sweeps.kept import merged, seeds_of, write
from sweeps.results import named
from tests import ROOT
from tests.commands import Forked
from tune_spaces import papers


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
    path = tmp_path / "tables" / "kteps-FDU-table2.csv"
    path.parent.mkdir()
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
    begin = BEGIN.format("kteps")
    (tmp_path / "kteps.md").write_text(f"Above.\n{begin}\nold\n{END}\nBelow.\n")
    (tmp_path / "rrldp.md").write_text("A page without a list.\n")
    assert main(["--render", str(path)]) == 0
    assert path.read_text() == before
    written = (tmp_path / "kteps.md").read_text()
    assert written == f"Above.\n{begin}\n{coverage('kteps', path.parent, 'tables/')}\n{END}\nBelow.\n"
    line = "| table 2 | FDU | 2 of 10 | 2 |  | 0 of 1 | One. | [kteps-FDU-table2](tables/kteps-FDU-table2.md) |"
    assert line in written
    assert "Nothing was run of: table 3, table 4, table 5, table 6, table 7, table 8 on FDU; table 2," in written
    assert (tmp_path / "rrldp.md").read_text() == "A page without a list.\n"
    assert coverage("rrldp", path.parent).count("table 1, table 3") == 1


@contextmanager
def files_of(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size in bytes: as on a full disk, its end is not written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_table_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    stem = tmp_path / "tables" / "kteps-FDU-table2"
    stem.parent.mkdir()
    kept = table({"KTEPS": [1.0, 2.0]}, "first")
    write(named(kept), stem)
    page = tmp_path / "kteps.md"
    page.write_text(f"{'Above. ' * 1000}\n{BEGIN.format('kteps')}\n{END}\nBelow.\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    more = merged(kept, table({"KTEPS": [3.125] * 1000}, "second"))
    with files_of(4096):
        with pytest.raises(
            UserError, match=r"tables cannot be written \(File too large\): .*; the same command writes"
        ):
            write(named(more), stem)
        with pytest.raises(UserError, match=r"kteps\.md cannot be written \(File too large\)"):
            update(stem.parent)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def table(rows: dict[str, list[float | None]], command: str, counted: list[float] | None = None) -> Reproduction:
    """A table 2 of KTEPS with these values of Ag, one client, costs and commits; ``counted`` of a unigram row."""
    cells = [Cell(row, "Ag", None, values) for row, values in rows.items()]
    cells += [Cell("unigram", "Ag", None, counted)] if counted else []
    clients = [Cell("dvd", row, None, values) for row, values in rows.items()]
    costs = {row: Cost(1.0, None, float(len(values))) for row, values in rows.items()}
    origin = Origin("kteps", "FDU", "2", command)
    commits = dict.fromkeys(rows, command)
    return Reproduction("", 0.0, cells, clients, costs, ["Said."], commits=commits, origin=origin)


def test_a_table_is_extended_by_the_rows_of_a_later_run() -> None:
    kept = table({"KTEPS": [1.0, 2.0, 3.0], "Indiv.": [4.0], "FedAvg": [5.0, 6.0]}, "first")
    new = table({"FedProx": [7.0], "FedAvg": [8.0, 9.0], "KTEPS": [0.0]}, "second")
    both = merged(kept, new)
    found = {"Indiv.": [4.0], "FedAvg": [8.0, 9.0], "FedProx": [7.0], "KTEPS": [1.0, 2.0, 3.0]}
    assert [(cell.row, cell.seeds) for cell in both.cells] == list(found.items())  # in the order of the paper's table
    assert [(cell.column, cell.seeds) for cell in both.clients] == list(found.items())
    assert {row: spent.bytes_per_client for row, spent in both.costs.items()} == {
        row: len(v) for row, v in found.items()
    }
    ran = {"Indiv.": "first", "FedAvg": "second", "FedProx": "second", "KTEPS": "first"}
    assert both.commits == ran
    assert both.source.commands == ["first", "second"]
    assert (both.fewest_seeds, both.seeds) == (1, 3)
    again = merged(both, table({"FedProx": [7.0]}, "second"))
    assert again.source.commands == ["first", "second"]
    text = markdown(named(both))
    assert "Commands: `first`; `second`" in text
    assert "Code: first (Indiv., KTEPS); second (FedAvg, FedProx)." in text
    assert "| FedAvg | 85.1 | 8.5 ± 0.7 (2 seeds) |" in text
    assert "| FedProx | 84.6 | 7.0 | **-77.6** |" in text
    assert "without ±: of one seed" in text
    assert "| KTEPS - FedAvg | **-7.0 ± 0.0** |" not in text  # 1 - 8 and 2 - 9 are equal: there is no test
    assert "| KTEPS - FedAvg | -7.0 ± 0.0 | no test |" in text
    assert "| FedProx - FedAvg | -1.0 | no test |" in text
    assert read_csv_of(both) == both


def test_a_row_is_extended_by_later_seeds() -> None:
    kept = table({"KTEPS": [1.0, 2.0], "FedAvg": [5.0], "FS": [7.0]}, "first", [10.0, 11.0])
    new = table({"KTEPS": [3.0], "FedAvg": [6.0, 4.0], "FedProx": [8.0]}, "second, first")
    cells = [Cell(f"unigram of {row}", "Ag", None, of) for row, of in COUNTED.items()]
    both = merged(kept, replace(new, cells=[*new.cells, *cells]), later=["KTEPS", "FedAvg"])
    found = {"FS": [7.0], "FedAvg": [5.0, 6.0, 4.0], "FedProx": [8.0], "KTEPS": [1.0, 2.0, 3.0]}
    assert [(cell.row, cell.seeds) for cell in both.cells] == [*found.items(), ("unigram", [10.0, 11.0, 12.0])]
    assert [(cell.column, cell.seeds) for cell in both.clients] == list(found.items())
    assert both.costs["KTEPS"].bytes_per_client == pytest.approx((2 * 2 + 1) / 3)
    assert both.costs["FedAvg"].bytes_per_client == pytest.approx((1 + 2 * 2) / 3)
    assert both.commits["FedAvg"] == "first, second"
    assert both.commits["FedProx"] == "second, first"
    assert read_csv_of(both).cells == both.cells


COUNTED = {"KTEPS": [12.0], "FedAvg": [11.0, 12.0], "FedProx": [10.0]}  # word counts of the corpora of these seeds


def test_seeds_are_those_of_rows_with_all_columns() -> None:
    made = table({"KTEPS": [1.0, 2.0]}, "first")
    assert seeds_of(made, "KTEPS", ["Ag"]) == 2
    assert seeds_of(made, "KTEPS", ["Ag", "Ap"]) == seeds_of(made, "FS", ["Ag"]) == 0


def read_csv_of(made: Reproduction) -> Reproduction:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(table_csv(made))
        return read_csv(path)


def test_unigram_rows_are_shared_where_seeds_agree() -> None:
    kept = table({"KTEPS": [1.0, 2.0]}, "first", [10.0, 11.0])
    same = merged(kept, table({"FS": [3.0]}, "second", [10.0]))
    assert [(cell.row, cell.seeds) for cell in same.cells][-1] == ("unigram", [10.0, 11.0])
    digits = merged(kept, table({"FS": [3.0]}, "second", [10.000000000012]))
    assert [cell.row for cell in digits.cells][-1] == "unigram", "a file keeps ten digits"
    other = merged(kept, table({"FS": [3.0]}, "second", [12.0]))
    counted = [(cell.row, cell.seeds) for cell in other.cells if cell.row.startswith("unigram")]
    assert counted == [("unigram of KTEPS", [10.0, 11.0]), ("unigram of FS", [12.0])]


KEPT = ROOT / "docs" / "reproductions"
NAMES = sorted(file.stem for file in papers.PAPERS.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_documented_coverage_is_that_of_the_files(name: str) -> None:
    page = (KEPT / f"{name}.md").read_text()
    written = f"{BEGIN.format(name)}\n{coverage(name, KEPT / 'tables', 'tables/')}\n{END}"
    assert written in page, "platform.reproduce --render"


@pytest.mark.parametrize("path", sorted((KEPT / "tables").glob("*.csv")), ids=lambda path: path.stem)
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


def test_a_folder_without_a_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"^--out: '' is no folder: name one$"):
        main(["kteps", "2", "--out", ""])


@pytest.mark.parametrize("word", ["half", "0", "1.5", "nan"])
def test_a_scale_is_a_share(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["kteps", "2", "--scale", word])
    assert left.value.code == 2
    assert f"--scale: {word} is no scale: give a number above 0 and at most 1" in capsys.readouterr().err


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
    more = Forked(tmp_path, "reproduce", "kteps", "3", "--seeds", "3", *scale).wait()
    assert more.returncode == 0, more.stderr
    assert "table 3: KTEPS (2 of its seeds) kept" in more.stdout
    assert "0 of 1 trials are there already" in more.stdout
    assert "over 3 seeds" in file.read_text()
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("| KTEPS |")]
    scale.insert(scale.index("KTEPS"), "ASP.")  # whose network depends on the number of clients
    again = Forked(tmp_path, "reproduce", "kteps", "2", *scale).wait()  # a seed less of another table
    assert again.returncode == 0, again.stderr
    assert "1 of 2 trials are there already" in again.stdout
    assert len(list(tmp_path.glob("kteps-FDU-table2-*.png"))) == 1
    kept = Forked(tmp_path, "reproduce", "kteps", "2", *scale).wait()
    assert kept.returncode == 0, kept.stderr
    assert "table 2: ASP., KTEPS kept (kteps-FDU-table2-scale0.04-" in kept.stdout
    assert "nothing is left to run" in kept.stdout
    written = Forked(tmp_path, "reproduce", "kteps", "3", "--finished", *scale).wait()  # its trial is of table 2
    assert written.returncode == 0, written.stderr
    (extended,) = tmp_path.glob("kteps-FDU-table3-scale0.04-*.md")
    rows = [line.partition(" |")[0] for line in extended.read_text().splitlines() if line.startswith(("| KT", "| ASP"))]
    assert rows[:2] == ["| ASP.", "| KTEPS"]
    assert line in extended.read_text().splitlines()  # all seeds are still there
    for state in tmp_path.glob("runs/*/*/checkpoint"):
        Checkpoints(state, "of other texts").save(np.zeros(1, np.float32), {}, history(state))
    refused = Forked(tmp_path, "reproduce", "kteps", "2", "--again", *scale).wait()
    assert refused.returncode == 2
    assert "was made from other data or by another version of this code: give the --data" in refused.stderr
