"""Searched sweeps on Ray: real trials and failures, and the same points after an interruption."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

import fedtext
from dashboards.callback import TrialCallback
from dashboards.progress import PlainProgress
from dashboards.trial import Outcome
from fedtext.config.experiment import use
from fedtext.config.tune import Tune
from fedtext.errors import OwnershipLostError, UserError
from fedtext.records import RoundRecord
from fedtext.runtime.remote import Remote
from fedtext.state.copy import Copy
from fedtext.state.outage import Outage
from sweeps import sweep
from sweeps.arrange import arranged, with_corpora
from sweeps.folder import RunFolder
from sweeps.job import Job, Searched, key
from sweeps.suggested import Suggested, result_of
from tests import tiny
from tests.commands import EXPERIMENT, runs
from tests.loops import nonempty
from tests.planned import Planned, experiment
from tests.stores import Store, object_store
from tune_spaces.cases import cases
from tune_spaces.search import Result, Search

FAULTY = """
from typing import Literal

from pydantic import Field

from fedtext.methods import FedAvg


class Faulty(FedAvg):
    \"\"\"FedAvg that fails when it is told to.\"\"\"

    name: Literal["faulty"] = "faulty"
    fails: bool = Field(False, description="whether its loss raises")
    weight: float = Field(1.0, ge=0.5, description="weight of the loss")

    def loss(self, model, received, batch):
        if self.fails:
            raise ArithmeticError("told to fail")
        return {name: self.weight * term for name, term in super().loss(model, received, batch).items()}
"""

SEARCHED: dict[str, Any] = EXPERIMENT | {
    "method": "faulty",
    "baselines": ["fedavg"],
    "training": EXPERIMENT["training"] | {"rounds": 1},
    "evaluation": {"personalize": None},
    "space": {
        "training.optimizer.lr": {"loguniform": [0.001, 0.1]},
        "method.fails": {"choice": [False, False, False, True]},
    },
    "tune": {
        "search": "tpe",
        "metric": "Ag_val",
        "metrics": ["Ag_val", "loss"],
        "samples": 6,
        "startup": 3,
        "pending": 2,
    },
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "faulty.py").write_text(FAULTY)
    yield tmp_path
    ray.shutdown()
    use(())


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    with object_store(monkeypatch, tmp_path / "cache") as store:
        yield store


@pytest.mark.slow
@pytest.mark.ray
def test_a_searched_sweep_with_failures_and_its_resumption(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    plugin = home / "faulty.py"
    whole = sweep(SEARCHED, name="whole", num_cpus=2, plugins=[plugin])
    assert [trial.id for trial in whole.trials] == ["000-fedavg", *(f"{number:03d}-faulty" for number in range(1, 7))]
    asked = json.loads((whole.folder / "search.json").read_text())
    assert asked["points"] == [dict(trial.overrides) for trial in whole.trials[1:]]
    failing = [trial.id for trial in whole.trials[1:] if trial.overrides["method.fails"]]
    assert [trial.id for trial in whole.failed] == failing
    assert failing
    assert all(nonempty("told to fail" in trial.error for trial in whole.failed))
    finished = [trial for trial in whole.trials[1:] if trial.status == "finished"]
    assert whole.best.metrics["Ag_val"] == max(trial.metrics["Ag_val"] for trial in finished)
    told = [one["values"] for one in asked["told"]]
    assert told == [
        None if trial.status == "failed" else [trial.metrics["Ag_val"], trial.metrics["loss"]]
        for trial in whole.trials[1 : 1 + len(told)]
    ]
    assert len(told) == 4, "the last of 6 points depends on all but the one before it"
    assert whole.front[0].metrics["Ag_val"] == whole.best.metrics["Ag_val"]
    assert "7 of 7 trials done" in capfd.readouterr().out
    assert len(runs(home)) == 8

    alone = fedtext.run(whole.best.experiment)
    assert alone.metrics["Ag_val"] == whole.best.metrics["Ag_val"]

    # What an interruption before the fifth point leaves: a log of four points, and no sixth trial.
    begun = home / "elsewhere" / "begun"
    shutil.copytree(whole.folder, begun, ignore=shutil.ignore_patterns("tracking.json", ".lock"))
    for trial in whole.trials[5:]:
        shutil.rmtree(begun / trial.id)
    (begun / "search.json").write_text(json.dumps(asked | {"points": asked["points"][:4], "told": asked["told"][:2]}))
    resumed = sweep(resume=str(begun), num_cpus=2)
    assert [trial.overrides for trial in resumed.trials] == [trial.overrides for trial in whole.trials]
    assert [trial.status for trial in resumed.trials] == [trial.status for trial in whole.trials]
    assert [trial.metrics.get("Ag_val") for trial in resumed.trials] == [
        trial.metrics.get("Ag_val") for trial in whole.trials
    ]
    assert json.loads((begun / "search.json").read_text()) == asked
    with pytest.raises(UserError, match="was begun otherwise"):
        sweep(None, "tune.pending=3", resume=str(begun), num_cpus=2)

    # The same search at a URI, with one point more, until another machine continues it as well.
    store.copy(begun, "runs/begun")
    uri, start = store.uri("runs/begun"), TrialCallback.on_trial_start

    def continued_elsewhere(self: TrialCallback, trial: Any, **more: Any) -> None:
        start(self, trial=trial, **more)
        if trial.config["case"] == "007-faulty":
            Copy(home / "another machine", Remote(uri, "storage")).take()

    monkeypatch.setattr(TrialCallback, "on_trial_start", continued_elsewhere)
    with pytest.raises(OwnershipLostError, match=r"another command on .* has continued the run s3://"):
        sweep(None, "tune.samples=7", resume=uri, num_cpus=2)
    longer = json.loads(store.get("runs/begun/search.json"))
    assert longer["points"][:6] == asked["points"]
    assert len(longer["points"]) == 7
    assert "007-faulty" in json.loads(store.get("runs/begun/plan.json"))["trials"]
    assert not (home / "runs" / "begun" / "007-faulty" / "outcome.json").exists()
    theirs = {run.info.run_name.split()[0]: run.info.status for run in runs(home) if run.info.status == "RUNNING"}
    assert set(theirs) == {"begun", "007-faulty"}, "MLflow's runs are left to the other machine"
    assert "007-faulty/outcome.json" not in store.files("runs/begun")


def outcome(value: float | None, status: Any = "finished", rounds: int = 1) -> Outcome:
    metrics = {} if value is None else {"Ag_val": value}
    return Outcome(status, tuple(RoundRecord(number, 0.0, metrics) for number in range(1, rounds + 1)))


@pytest.mark.parametrize(
    ("seeds", "outcomes", "expected"),
    [
        ("inside", [outcome(0.5), outcome(0.7)], Result((0.6,))),
        ("outside", [outcome(0.5), outcome(0.7)], Result((0.5,))),
        ("inside", [outcome(0.5), outcome(0.7, "failed")], Result()),
        ("outside", [outcome(0.5), outcome(0.7, "failed")], Result((0.5,))),
        ("outside", [outcome(0.5, "failed"), outcome(0.7)], Result()),
        ("inside", [outcome(0.5), outcome(None)], Result()),
        ("inside", [outcome(0.5, "stopped", 2)], Result(rounds=((1, 0.5), (2, 0.5)))),
    ],
)
def test_what_a_search_is_told_of_a_point(seeds: Any, outcomes: list[Outcome], expected: Result) -> None:
    cases: list[Any] = [Planned(f"001-kteps-seed{n}", "", False, experiment()) for n in range(len(outcomes))]
    by_id = {case.id: one for case, one in zip(cases, outcomes, strict=True)}
    found = result_of(cases, by_id, Tune(metric="Ag_val", search="tpe", seeds=seeds))
    assert found.rounds == expected.rounds
    assert found.values == (expected.values and pytest.approx(expected.values))


TUNE = {"search": "tpe", "metric": "Ag", "samples": 8, "startup": 8, "pending": 8}
NODES = [{"CPU": 4.0}]


class Away:
    """A copy at a URI that does not answer."""

    outage = Outage()

    def push(self) -> None:
        raise UserError("the storage does not answer")


def on_gpus() -> Any:
    """A search of which some points are valid experiments that this cluster, without GPUs, cannot run."""
    return tiny.experiment(corpus="demo", space={"training.tf32": {"choice": [False, True]}}, tune=TUNE)


NOTHING: Any = SimpleNamespace(call=lambda what, failed: None, begin=lambda: None)  # in place of MLflow's recorder


def searching(folder: RunFolder) -> Job:
    """The job of such a search, of which no point has been suggested."""
    experiment, store = on_gpus(), None
    searched = Searched(Search(experiment), experiment.model_dump(mode="json"), "test", None)
    corpora = {key(experiment): tiny.corpus()}
    return Job(True, experiment, [], corpora, {}, {}, NODES, store, folder, searched=searched)  # type: ignore[arg-type]


def test_a_suggested_point_that_the_cluster_cannot_run_ends_itself_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor does a copy that cannot be brought up to date end the search."""
    job = searching(RunFolder(tmp_path, copy=Away()))  # type: ignore[arg-type]
    callback = TrialCallback([], NOTHING, PlainProgress([], io.StringIO()), lambda case: [])
    given: Any = "its assignment"
    source = Suggested(job, callback, (), lambda case: given)
    running = []
    while found := source.next():
        running.append(found[0])
    failed = [case.id for case in job.cases if case.overrides["training.tf32"]]
    assert len(job.cases) == 8
    assert 0 < len(failed) < 8
    assert running == [case.id for case in job.cases if case.id not in failed]
    assert list(callback.outcomes) == failed
    assert all(nonempty("training.tf32 is about a GPU" in callback.outcomes[case].error for case in failed))
    assert "the storage does not answer; it is tried again later, and at the end" in capfd.readouterr().err


class Lost:
    """A copy at a URI of a run that another command has continued."""

    outage = Outage()

    def push(self) -> None:
        raise OwnershipLostError("another command has continued the run")


def test_a_search_ends_when_another_command_has_continued_the_run(tmp_path: Path) -> None:
    job = searching(RunFolder(tmp_path, copy=Lost()))  # type: ignore[arg-type]
    display = PlainProgress([], io.StringIO())
    callback = TrialCallback([], NOTHING, display, lambda case: [], on_end=job.folder.record)
    with pytest.raises(OwnershipLostError):
        Suggested(job, callback, (), lambda case: job).next()  # type: ignore[arg-type,return-value]
    callback.on_step_end(1, [])
    callback.refuse(job.cases[0])  # its outcome cannot be copied
    with pytest.raises(OwnershipLostError, match="another command has continued the run"):
        callback.on_step_end(2, [])


def test_a_known_point_that_the_cluster_cannot_run_ends_itself_alone(tmp_path: Path) -> None:
    experiment, folder, store = on_gpus(), RunFolder(tmp_path), None
    points = [{"training.tf32": value} for value in (False, True, False)]
    known = cases(experiment.model_dump(mode="json"), experiment, "test", points)
    found, corpora = with_corpora(experiment, known, None, folder)
    job = arranged(True, experiment, found, corpora, NODES, store, folder)  # type: ignore[arg-type]
    assert [bool(case.problem) for case in job.cases] == [False, True, False]
    assert not job.cases[1].experiment.training.tf32

    everywhere = experiment.model_copy(update={"training": experiment.training.model_copy(update={"tf32": True})})
    with pytest.raises(UserError, match=r"training\.tf32 is about a GPU"):
        arranged(True, everywhere, known, corpora, NODES, store, folder)  # type: ignore[arg-type]
