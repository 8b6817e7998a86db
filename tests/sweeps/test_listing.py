"""``fedtext ls``: experiments, and runs with their state."""

import fcntl
import io
import json
import os
import platform.ls
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dashboards.trial import Outcome
from fedtext.errors import UserError
from fedtext.state.checkpoint import Checkpoints
from sweeps import listing
from sweeps.folder import RunFolder
from sweeps.listing_table import _ago, print_run, print_runs
from tests import ROOT
from tests.loops import nonempty
from tests.planned import Planned, experiment, kteps, row, rows

CASES = [Planned("00-fedavg", "fedavg", True, experiment("fedavg")), kteps(1, 0.01), kteps(2, 0.1)]


def begun(storage: Path, name: str, **ended: Outcome) -> RunFolder:
    """Return the folder of a sweep of three trials, with the outcomes of some: ``c1`` is that of the second."""
    made = experiment("kteps", tune={"metric": "Ap"})
    folder = RunFolder(storage / name)
    content = {"name": "demo", "corpus": "demo", "method": "kteps", "training": {"rounds": 3}}
    folder.create(content, made, "sweep", cases=CASES)  # type: ignore[arg-type]
    for place, outcome in ended.items():
        case = CASES[int(place[1:])].id
        flat = np.zeros(4, np.float32)
        if outcome.rows:
            Checkpoints(folder.case(case) / "checkpoint", "same").save(flat, {}, list(outcome.rows))
        if outcome.status != "stopped":  # stands for one that has not ended here
            folder.record(case, outcome)
    return folder


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    done = Outcome("finished", tuple(rows(3, level=0.6)))
    better, failed = Outcome("finished", tuple(rows(3, level=0.9))), Outcome("failed", (), "client dvd failed")
    runs = tmp_path / "runs"
    begun(runs, "whole", c0=better, c1=done, c2=Outcome("finished", tuple(rows(3, level=0.7))))
    begun(runs, "broken", c0=done, c1=done, c2=failed)
    begun(runs, "half", c0=done, c1=Outcome("stopped", tuple(rows(2))))
    begun(runs, "new")
    return runs


@pytest.fixture(autouse=True)
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs are made by a command that has ended: none of them is locked."""
    monkeypatch.setattr(RunFolder, "_lock", lambda self: None)


def test_a_run_is_listed_with_its_state_its_rounds_and_its_best_metric(storage: Path) -> None:
    found = {run.name: run for run in listing.runs(storage)}
    assert {name: run.state for name, run in found.items()} == {
        "whole": "finished",
        "broken": "failed",
        "half": "interrupted",
        "new": "interrupted",
    }
    whole = found["whole"]
    assert (whole.experiment, whole.command, whole.methods) == ("demo", "sweep", ("fedavg", "kteps"))
    assert (whole.metric, whole.best) == ("Ap", pytest.approx(0.75)), "a baseline is no candidate"
    assert [(trial.rounds, trial.of) for trial in found["half"].trials] == [(3, 3), (2, 3), (0, 3)]
    assert [trial.status for trial in found["half"].trials] == ["finished", "begun", "waiting"]
    assert found["new"].best is None
    assert found["broken"].trials[2].error == "client dvd failed"


def test_a_metric_that_the_last_evaluation_lacks_is_not_that_of_an_older_model(storage: Path) -> None:
    """As in the table of a sweep, in its report and in a search."""
    records = row(1, AUC=0.6), row(2, AUC=0.7, bytes_total=8.0), row(3)
    begun(storage, "lacking", c1=Outcome("finished", records))
    trial = listing.run(storage / "lacking").trials[1]
    assert trial.metrics == records[-1].metrics | {"bytes_total": 8.0}


def test_the_best_value_is_that_of_a_mean_over_seeds() -> None:
    values = {
        "01-kteps-seed0": 0.9,
        "01-kteps-seed1": 0.5,
        "02-kteps-seed0": 0.8,
        "02-kteps-seed1": 0.7,
        "03-seed": 0.1,
    }
    trials = [
        listing.ListedTrial(id_, "kteps", False, "finished", 3, 3, {"Ap": value, "loss": value}, "")
        for id_, value in values.items()
    ]
    assert listing._best(trials, "Ap", "auto") == ("Ap", pytest.approx(0.75))
    assert listing._best(trials[:4], "loss", "auto") == ("loss", pytest.approx(0.7))
    failed = replace(trials[1], status="failed")
    assert listing._best([trials[0], failed, *trials[2:4]], "Ap", "auto") == ("Ap", pytest.approx(0.75)), "a seed lacks"
    assert listing._best([trials[0], failed], "Ap", "auto") == ("Ap", pytest.approx(0.9)), "while none is complete"


@pytest.mark.parametrize("spaces", [{}, {"c1": Outcome("failed", (), "no memory"), "c2": Outcome("failed")}])
def test_a_baseline_is_never_the_best(storage: Path, capsys: pytest.CaptureFixture[str], spaces: Any) -> None:
    baseline = Outcome("finished", tuple(rows(3, level=0.9)))
    run = listing.run(begun(storage, "left", c0=baseline, **spaces).path)
    assert (run.metric, run.best) == ("Ap", None)
    print_run(run, sys.stdout)
    table, trials = capsys.readouterr().out.split("\n\n")
    assert "best" not in table
    assert [line.split()[-1] for line in trials.splitlines()[:2]] == ["Ap", "95.0"], "that of the baseline"


def test_another_metric_is_named_where_no_trial_has_the_one_that_sorts(storage: Path) -> None:
    only = Outcome("finished", tuple(rows(2, level=0.6)))  # without Ap, which is of the last round
    run = listing.run(begun(storage, "shorter", c0=Outcome("finished", tuple(rows(3))), c1=only).path)
    assert (run.metric, run.best) == ("Ag", pytest.approx(0.62))


def test_a_run_that_a_command_works_on_is_running(storage: Path) -> None:
    with open(storage / "half" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert listing.run(storage / "half").state == "running"
    assert listing.run(storage / "half").state == "interrupted"


def test_a_search_that_has_points_left_to_suggest_is_interrupted(storage: Path) -> None:
    """It was stopped after all trials of its points so far had ended."""
    whole = storage / "whole"
    resolved = yaml.safe_load((whole / "experiment.yaml").read_text())
    resolved["tune"] |= {"search": "tpe", "samples": 3}
    (whole / "experiment.yaml").write_text(yaml.safe_dump(resolved))
    states = []
    for log in ('{"points": [{}, {}]}', '{"points": [{}, {}, {}]}', "{", None):
        (whole / "search.json").write_text(log) if log else (whole / "search.json").unlink()
        states.append(listing.run(whole).state)
    assert states == ["interrupted", "finished", "finished", "interrupted"]


def test_the_list_takes_no_lock_that_a_command_needs(storage: Path) -> None:
    (storage / "half" / ".lock").touch()
    listing.run(storage / "half")
    with open(storage / "half" / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_run_of_an_earlier_version_and_one_that_cannot_be_read_are_listed(storage: Path) -> None:
    plan = storage / "half" / "plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "trials": None}))
    (half,) = (run for run in listing.runs(storage) if run.name == "half")
    assert [(trial.id, trial.method, trial.of) for trial in half.trials] == [
        ("00-fedavg", "fedavg", None),
        ("01-kteps", "kteps", None),
    ]
    plan.write_text("{")
    (storage / "half" / "experiment.yaml").unlink()
    (half,) = (run for run in listing.runs(storage) if run.name == "half")
    assert (half.experiment, len(half.trials)) == ("", 2)


def test_a_folder_whose_plan_is_no_file_keeps_no_run_from_the_list(storage: Path) -> None:
    (storage / "odd" / "plan.json").mkdir(parents=True)
    (storage / "gone").mkdir()
    (storage / "gone" / "plan.json").symlink_to(storage / "nowhere.json")
    assert sorted(run.name for run in listing.runs(storage)) == ["broken", "half", "new", "whole"]
    assert listing.names(storage) == ["broken", "half", "new", "whole"]


def test_experiments_have_the_first_sentence_of_their_comment() -> None:
    found = {one.name: one.summary for one in listing.experiments(ROOT / "tune_spaces")}
    assert set(found) == {file.name for file in (ROOT / "tune_spaces").glob("*.yaml")}
    assert found["kteps.yaml"] == "KTEPS on the 16 domains of FDU-MTL, swept over both loss weights"
    assert all(found.values())
    assert found["stackoverflow.yaml"].endswith(", with the model of Reddi et al. 2020")


@pytest.mark.parametrize(
    ("comment", "summary"),
    [
        ("As in Li et al. 2021. It is slow.", "As in Li et al. 2021"),
        ("As in Li et al. It is slow.", "As in Li et al"),
        ("A cabal. 16 clients.", "A cabal"),
        ("One sentence:", "One sentence"),
    ],
)
def test_a_first_sentence_does_not_end_within_a_citation(comment: str, summary: str, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(f"# {comment}\n\nmethod: fedavg\n")
    (found,) = listing.experiments(tmp_path)
    assert found.summary == summary


def test_the_command_prints_tables_and_json(
    storage: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDTEXT_HOME", str(storage.parent))
    assert platform.ls.main([]) == 0
    out = capsys.readouterr().out
    assert "kteps.yaml" in out
    assert f"{storage}: 4 runs" in out
    (line,) = (line for line in out.splitlines() if line.startswith("whole"))
    assert line.split("  ")[0] == "whole"
    for part in ("demo", "fedavg, kteps", "finished", "3/3", "9/9", "Ap 75.0", " ago"):
        assert part in line
    assert not [line for line in out.splitlines() if line != line.rstrip()]
    assert platform.ls.main(["broken"]) == 0
    out = capsys.readouterr().out
    assert "02-kteps failed: client dvd failed" in out
    assert platform.ls.main(["--json", "--storage", str(storage)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {run["name"]: run["state"] for run in content["runs"]}["half"] == "interrupted"
    (whole,) = (run for run in content["runs"] if run["name"] == "whole")
    assert whole["trials"][1]["metrics"]["Ap"] == pytest.approx(0.65)
    assert len(content["experiments"]) > 5
    with pytest.raises(UserError, match=r"there is no run in .*nobody"):
        platform.ls.main(["nobody"])
    for words, what in nonempty(((["--storage", ""], "--storage"), ([""], "ls"))):
        with pytest.raises(UserError, match=f"^{what}: '' is no folder: name one$"):
            platform.ls.main(words)
    with pytest.raises(UserError, match="--storage: there is no folder"):
        platform.ls.main(["--storage", "/nowhere"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_has_the_state_of_every_run(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    for width, columns in ((60, ["run", "state", "trials", "best"]), (45, ["run", "state", "trials", "best"])):
        monkeypatch.setenv("COLUMNS", str(width))
        out = Terminal()
        print_runs(listing.runs(storage), out)
        lines = out.getvalue().splitlines()
        shown = lines[0].replace("\x1b[1m", "").replace("\x1b[0m", "").split()
        assert set(columns) <= set(shown)
        assert all(nonempty(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= width for line in lines))
    out = Terminal()
    print_run(listing.run(storage / "broken"), out)
    assert "\x1b[3" not in out.getvalue(), "colours"


def test_ages_are_written_for_people() -> None:
    assert [_ago(seconds) for seconds in (-1, 12, 90, 7200, 86400, 3 * 86400)] == [
        "0 s ago",
        "12 s ago",
        "2 min ago",
        "2 h ago",
        "1 day ago",
        "3 days ago",
    ]


def test_the_list_of_runs_does_not_wait_for_torch_or_ray(tmp_path: Path) -> None:
    script = (
        "import platform.ls, sys; platform.ls.main(['--json']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'ray', 'mlflow')))"
    )
    environment = os.environ | {"FEDTEXT_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("Ag_val", 0.54166, "54.2"),
        ("perplexity_val", 1234.56, "1234.6"),
        ("loss", 0.69314718, "0.693"),
        ("epsilon", 5864447.4, "5,864,447"),
        ("of_a_plugin", 0.123456, "0.1235"),
    ],
)
def test_values_have_the_digits_of_the_table_of_a_sweep(tmp_path: Path, name: str, value: float, text: str) -> None:
    trial = listing.ListedTrial("00-fedavg", "fedavg", False, "finished", 1, 1, {name: value})
    listed = listing.ListedRun("r", tmp_path, "x", "sweep", "finished", (trial,), name, value, 0.0)
    out = io.StringIO()
    print_run(listed, out)
    assert f"{name} {text}" in out.getvalue()
    assert out.getvalue().splitlines()[-1].split()[-1] == text
