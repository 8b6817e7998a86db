"""What a trial does about the copy of its run at a URI."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from actors import trial as trials
from actors.patience import HungActorsError, Measured
from actors.trial import Assignment, copied, serve
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.errors import OwnershipLostError, UserError
from fedtext.records import RoundRecord
from fedtext.runtime.remote import store_variables
from fedtext.state import noise_key
from tests import tiny
from tests.loops import nonempty


class Away:
    """A copy of which each attempt to bring it up to date ends in the next of some ways."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)

    def push(self, *parts: str, checkpoints: bool) -> None:
        assert (parts, checkpoints) == (("00-a",), True)
        if error := self.ends.pop(0):
            raise error


def assignment(copy: Any) -> Assignment:
    nothing: Any = SimpleNamespace()
    return Assignment(nothing, nothing, nothing, Path("/runs/first/00-a"), copy)


def test_a_store_that_fails_for_a_while_ends_no_trial() -> None:
    trial = assignment(Away(UserError("the store does not answer"), None))
    assert copied(trial).startswith("the store does not answer; training goes on, and it is tried again later")
    assert copied(trial) == ""
    assert copied(assignment(None)) == ""


def test_a_run_that_another_command_has_continued_ends_the_trial() -> None:
    with pytest.raises(OwnershipLostError, match="another command has continued"):
        copied(assignment(Away(OwnershipLostError("another command has continued"))))


def test_a_server_reaches_the_store_that_the_command_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster a process has the environment of ``ray start``, and not that of the command."""
    here = {"AWS_ENDPOINT_URL": "http://store:9000", "AWS_PROFILE": "team", "GOOGLE_APPLICATION_CREDENTIALS": "/key"}
    for name, value in nonempty(here.items()):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "no server needs it")
    sent = store_variables()
    assert here.items() <= sent.items()
    assert "MLFLOW_TRACKING_PASSWORD" not in sent
    for name in here:
        monkeypatch.delenv(name)
    seen = list[str | None]()
    monkeypatch.setattr(trials, "_serve", lambda *_: seen.extend(os.environ.get(name) for name in here))
    names = list[str]()

    def metrics(experiment: Any, trial: str) -> SimpleNamespace:
        names.append(trial)
        return SimpleNamespace(begin=lambda rounds: None, end=lambda: None)

    monkeypatch.setattr(trials, "TrialMetrics", metrics)
    case: Any = SimpleNamespace(training=SimpleNamespace(rounds=1), resources=SimpleNamespace(hang_timeout_s=1.0))
    nothing: Any = None
    assigned = Assignment(case, nothing, nothing, Path("/runs/first/00-a"), variables=sent)
    serve({"case": "00-a"}, {"00-a": assigned})
    assert seen == list(here.values())
    assert names == ["first/00-a"], "a trial of the same experiment in another run has other gauges"


@pytest.mark.parametrize(("completes", "ends"), [([1, 2, 1, 1], "finished"), ([1, 1, 0], "lost")])
def test_restarts_count_from_the_last_completed_round(
    completes: list[int], ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One restart is allowed in a row; each attempt but the last completes so many rounds, and is lost then."""
    left, told, done = list(completes), list[dict[str, Any]](), [0]

    def rounds(assignment: Any, *_: Any) -> Iterator[tuple[RoundRecord, dict[str, str]]]:
        for _ in range(left.pop(0) if left else 1):
            done[0] += 1
            yield RoundRecord(done[0], 0.0, {}), {"changed": "" if done[0] > 1 else "other machines"}
        if left or ends == "lost":
            raise HungActorsError("late")

    monkeypatch.setattr(trials, "rounds", rounds)
    monkeypatch.setattr(trials.tune, "report", told.append)
    resources = SimpleNamespace(max_restarts=1)
    given: Any = SimpleNamespace(experiment=SimpleNamespace(resources=resources), folder=Path("/nowhere"))
    trials._serve(given, SimpleNamespace(add=lambda **counts: None))  # type: ignore[arg-type]
    reported = [each["record"].round for each in told if "record" in each]
    assert reported == list(range(1, sum(completes) + 1))
    errors = [each["error"] for each in told if "error" in each]
    lost = "its client actors were lost 2 times in a row (more than resources.max_restarts), the last time because: "
    assert errors == ([f"{lost}late"] if ends == "lost" else [])
    assert sum(bool(each.get("lost")) for each in told) == sum(1 for more in completes[1:] if more)
    assert [each["changed"] for each in told if "record" in each][:2] == ["other machines", ""]
    assert {each["reached"] for each in told if each.get("lost")} == {0}, "there is no checkpoint"
    at_once = [each for each in told if "losing" in each]
    assert at_once == [{"losing": "late", "reached": 0}] * (len(completes) - 1), "none after the last attempt"
    assert told.index(at_once[0]) == completes[0], "before the round that is trained again"


class Here(LocalFleet):
    """A fleet of one process with what a trial asks of one of actors."""

    unused_gpus, short, took, late, nodes = "", "", 0.0, 0, ("here",)
    addresses = MappingProxyType(dict[str, str]())

    def __init__(self, experiment: Experiment, shipment: Any, unshared: Any, noise: Any, **given: Any) -> None:
        super().__init__(experiment, tiny.TWO, unshared, noise=noise)

    def close(self, keep: bool = False) -> None:
        assert keep

    def salvage(self) -> None:
        pass


NO_METRICS: Any = SimpleNamespace(trial="", completed=lambda *_: None, add=lambda **_: None)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "RayFleet", Here)
    monkeypatch.setattr(trials.ray.util, "get_current_placement_group", lambda: None)


def small(folder: Path, until: int | None = None, method: str = "fedavg", **changes: Any) -> Assignment:
    made = tiny.experiment(method, training=tiny.TRAINING | {"rounds": 3}, **changes)
    shipped: Any = SimpleNamespace(header=tiny.TWO, corpus_clients=None)
    return Assignment(made, shipped, cast(Any, None), folder, until=until)


@pytest.mark.usefixtures("here")
def test_a_trial_that_is_started_again_after_the_round_at_which_it_pauses_pauses(tmp_path: Path) -> None:
    """Its server may die when the round is saved, before Tune has its record."""
    reached = []
    for until in nonempty((2, 2, None)):
        assigned, before = small(tmp_path, until), trials._reached(tmp_path / "checkpoint")
        found = trials.rounds(assigned, NO_METRICS, Measured(), before)
        reached.append([record.round for record, _ in found])
    assert reached == [[1, 2], [], [3]]


@pytest.mark.usefixtures("here")
def test_the_key_of_a_trial_is_at_the_copy_before_its_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine would begin again with a key of its own, and release the same rounds under other noise."""
    pytest.importorskip("randomgen")

    class Refusing(Away):
        def send(self, name: str) -> None:
            assert name == f"{tmp_path.name}/checkpoint/{noise_key.FILE}"
            assert (tmp_path / "checkpoint" / noise_key.FILE).exists()
            raise UserError("the store does not answer")

    monkeypatch.setattr(Here, "close", LocalFleet.close)
    given = replace(small(tmp_path, privacy={"noise": "secret"}), copy=cast(Any, Refusing()))
    with pytest.raises(UserError, match="the store does not answer"):
        next(iter(trials.rounds(given, NO_METRICS, Measured(), 0)))
    assert not list((tmp_path / "checkpoint").glob("round-*"))


@pytest.mark.usefixtures("here")
def test_a_trial_that_loses_an_actor_when_its_model_is_written_reports_its_last_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, left = list[dict[str, Any]](), [HungActorsError("late")]

    def parts(*given: Any) -> dict[int, Any]:
        if left:
            raise left.pop()
        return LocalFleet.parts(*given)

    monkeypatch.setattr(Here, "parts", parts)
    monkeypatch.setattr(trials.tune, "report", told.append)
    trials._serve(small(tmp_path, method="kteps", save={"model": "clients"}), NO_METRICS)
    assert not left
    assert [each["record"].round for each in told if "record" in each] == [1, 2, 3]
    assert (told[-1]["lost"], told[-1]["reached"]) == ("late", 3)
    assert told[-1]["record"].metrics.keys() >= {"Ap", "loss"}
    assert (tmp_path / "model" / "clients").is_dir()


def test_a_trial_that_ends_again_replaces_the_model_that_mlflow_has_packaged(tmp_path: Path) -> None:
    """As one does that goes on to more rounds, or whose server died after the last one."""
    made, nothing = tiny.experiment("fedavg", training=tiny.TRAINING | {"rounds": 1}), cast(Any, None)
    federation = tiny.federation(made)
    list(federation.run())
    shipped: Any = SimpleNamespace(header=tiny.TWO.header(False))
    assigned = Assignment(made, shipped, nothing, tmp_path)
    trials._keep(federation, assigned)
    (tmp_path / "model" / "MLmodel").write_text("of the earlier end")
    trials._keep(federation, assigned)
    assert (tmp_path / "model" / "model.json").is_file()
    assert not (tmp_path / "model" / "MLmodel").exists(), "it is packaged again"
