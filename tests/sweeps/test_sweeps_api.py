"""Sweeps from Python, on a Ray that the first of them starts."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import fedtext
import sweeps
from fedtext.config.experiment import use
from fedtext.errors import UserError
from fedtext.records import RoundRecord
from sweeps import load_model, sweep
from tests import tiny
from tests.commands import EXPERIMENT, ROOT, runs

SHORT = ["training.rounds=2", "evaluation.personalize=null", "tune.metric=Ag_val"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield tmp_path
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.ray
def test_a_sweep_of_a_mapping_and_its_resumption(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = sweep(EXPERIMENT, *SHORT, name="mine", num_cpus=4)
    assert [(trial.id, trial.baseline, trial.status) for trial in result.trials] == [
        ("00-fedavg", True, "finished"),
        ("01-kteps", False, "finished"),
        ("02-kteps", False, "finished"),
    ]
    assert result.failed == ()
    assert (result.name, result.folder) == ("mine", home / "runs" / "mine")
    assert result.best.metrics["Ag_val"] == max(trial.metrics["Ag_val"] for trial in result.trials[1:])
    assert not result.best.baseline
    table = result.to_pandas()
    assert list(table["round"]) == [1, 2] * 3
    assert list(table[table["trial"] == "02-kteps"]["method.lambda1"]) == [0.1, 0.1]
    assert list(table["loss"]) == [record.metrics["loss"] for trial in result.trials for record in trial.history]

    alone = fedtext.run(result.best.experiment)
    assert [record.metrics["Ag"] for record in alone.history] == [r.metrics["Ag"] for r in result.best.history]
    told = alone.model.predict(["a superb kettle"])
    assert result.best.model.predict(["a superb kettle"]) == told
    kept = {run.data.tags.get("fedtext.case"): run.info.run_id for run in runs(home)}
    assert load_model(f"runs:/{kept[result.best.id]}/model").predict(["a superb kettle"]) == told
    with pytest.raises(UserError, match=r"runs:/nothing/model: .*: name runs:/RUN_ID/model, and MLflow's address"):
        load_model("runs:/nothing/model")

    assert result.report == home / "runs" / "mine" / "report" / "report.html"
    assert result.report.is_file()

    (home / "runs" / "mine" / "02-kteps" / "outcome.json").unlink()
    shutil.rmtree(result.report.parent)
    result.report.parent.write_text("a file where the report's folder should be")
    again = sweep(resume="mine", num_cpus=4)
    assert again.report is None
    assert "the report was not written (" in capsys.readouterr().err
    assert ray.is_initialized(), "the Ray of the first sweep is used again"
    assert [trial.metrics["Ag"] for trial in again.trials] == [trial.metrics["Ag"] for trial in result.trials]
    assert len(runs(home)) == 4
    with pytest.raises(UserError, match="the run mine exists"):
        sweep(EXPERIMENT, name="mine")


PLUGIN = """
from typing import Literal

from fedtext.methods import FedAvg


class Elsewhere(FedAvg):
    \"\"\"FedAvg of another process.\"\"\"

    name: Literal["elsewhere"] = "elsewhere"
"""


def test_a_trial_with_plug_ins_is_opened_where_they_are_trusted(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(PLUGIN)
    words = ["demo.yaml", "method=elsewhere", "training.rounds=1", "corpus.clients=2", "corpus.train=20"]
    asked = [
        sys.executable,
        "-m",
        "fedtext",
        *words,
        "--plugin",
        str(tmp_path / "elsewhere.py"),
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trial = sweeps.Trial("0", "", False, tiny.experiment(), {}, "finished", "", (), tmp_path)
    with pytest.raises(UserError, match=r"needs the plug-in elsewhere\.py, a program: read it"):
        _ = trial.model
    try:
        (found,) = trial.load_model(trust_plugins=True).predict(["a superb kettle"])
        assert (found,) == tuple(trial.model.predict(["a superb kettle"])), "its plug-ins are loaded now"
    finally:
        use(())


def test_a_wrong_name_of_a_metric_is_answered_with_the_nearest(tmp_path: Path) -> None:
    history = (RoundRecord(1, 0.0, {"Ag": 0.5, "loss": 2.0}),)
    trial = sweeps.Trial("0", "", False, tiny.experiment(), {}, "finished", "", history, tmp_path)
    assert trial.metrics == {"Ag": 0.5, "loss": 2.0}
    with pytest.raises(KeyError, match=r"no metric Agg in this run; did you mean Ag\?"):
        _ = trial.metrics["Agg"]


def test_what_there_is_to_import() -> None:
    assert sweeps.__all__ == ["SweepResult", "Trial", "load_model", "sweep"]
    assert set(sweeps.__all__) <= set(dir(sweeps))
    with pytest.raises(AttributeError, match="module 'sweeps' has no attribute 'swept'"):
        _ = sweeps.swept
