"""Sweeps from Python, on a Ray that the first of them starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import fedtext
import sweeps
from fedtext.errors import UserError
from sweeps import load_model, sweep
from tests.commands import EXPERIMENT, runs

SHORT = ["training.rounds=2", "evaluation.personalize=null", "tune.metric=Ag_val"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield tmp_path
    ray.shutdown()


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

    (home / "runs" / "mine" / "02-kteps" / "outcome.json").unlink()
    again = sweep(resume="mine", num_cpus=4)
    assert ray.is_initialized(), "the Ray of the first sweep is used again"
    assert [trial.metrics["Ag"] for trial in again.trials] == [trial.metrics["Ag"] for trial in result.trials]
    assert len(runs(home)) == 4
    with pytest.raises(UserError, match="the run mine exists"):
        sweep(EXPERIMENT, name="mine")


def test_what_there_is_to_import() -> None:
    assert sweeps.__all__ == ["SweepResult", "Trial", "load_model", "sweep"]
    assert set(sweeps.__all__) <= set(dir(sweeps))
    with pytest.raises(AttributeError, match="module 'sweeps' has no attribute 'swept'"):
        _ = sweeps.swept
