"""Tracking on real MLflow stores and a real server that dies and returns; the progress display; the final table."""

import io
import json
import os
import pickle
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
import pytest
import ray
import yaml
from mlflow import MlflowClient
from ray import tune
from rich.console import Console

from dashboards import store as stores
from dashboards.callback import TrialCallback
from dashboards.mirror import Description, Mirror
from dashboards.progress import LiveProgress, PlainProgress, progress
from dashboards.records import flatten, metric_batches
from dashboards.store import Store
from dashboards.table import best, notes, print_table, rank
from dashboards.tracking import Tracker
from dashboards.trial import About, Dataset, Outcome, Row, data_size, duration
from fedtext.errors import ClientError, UserError
from fedtext.experiment import Experiment

START = 1_700_000_000.0
CLIENTS = ("books", "dvd")


@dataclass(frozen=True)
class Planned:
    """A case as a sweep plans it."""

    id: str
    label: str
    baseline: bool
    experiment: Experiment
    overrides: dict[str, Any] = field(default_factory=dict)


def experiment(method: Any = "kteps", rounds: int = 3, **changes: Any) -> Experiment:
    return Experiment.model_validate(
        {"name": "demo", "corpus": "demo", "method": method, "training": {"rounds": rounds}} | changes
    )


def kteps(number: int, lambda1: float, rounds: int = 3) -> Planned:
    planned = experiment({"name": "kteps", "lambda1": lambda1}, rounds, uplink=[{"gaussian": {"sigma": 0.01}}])
    return Planned(f"{number:02d}-kteps", f"lambda1={lambda1:g}", False, planned, {"method.lambda1": lambda1})


def row(round_: int, level: float = 0.7, last: bool = False, **metrics: float) -> Row:
    """A round like those a trial reports."""
    accuracy = level + 0.01 * round_
    clients = {name: {"Ag": accuracy + shift} for name, shift in zip(CLIENTS, (-0.05, 0.05), strict=True)}
    values = {"loss": 0.5 / round_, "bytes_up": 4e6, "bytes_down": 6e6, "clients_trained": 2.0, "round_seconds": 4.1}
    values |= {"Ag": accuracy} | ({"Ap": accuracy + 0.02, "Ap_val": accuracy} if last else {}) | metrics
    return {"round": round_, "time": START + 5 * round_, "metrics": values, "clients": clients}


def rows(count: int, total: int = 3, level: float = 0.7) -> list[Row]:
    return [row(round_, level, last=round_ == total) for round_ in range(1, count + 1)]


def steps(client: MlflowClient, run_id: str, name: str) -> list[int]:
    return [point.step for point in client.get_metric_history(run_id, name)]


def table_of(store: Store, run: str) -> Any:
    """The clients' table as MLflow's own reader gives it; it looks runs up at the process-wide address."""
    mlflow.set_tracking_uri(store.uri)
    try:
        return store.client().load_table("1", "clients.json", [run])
    finally:
        mlflow.set_tracking_uri(None)


def run_id(folder: Path) -> str:
    found = json.loads((folder / "tracking.json").read_text())["run_id"]
    assert isinstance(found, str)
    return found


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database, copied by each test: creating one takes seconds."""
    base = tmp_path_factory.mktemp("mlflow")
    stores.check(stores.resolve(None, base))
    return base / "mlflow.db"


@pytest.fixture
def store(tmp_path: Path, ready: Path) -> Store:
    with sqlite3.connect(ready) as source, sqlite3.connect(tmp_path / "mlflow.db") as copy:
        source.backup(copy)
    return stores.resolve(None, tmp_path)


# --- the store --------------------------------------------------------------------------------


def test_the_store_is_the_files_own_then_the_environments_then_a_database_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = stores.resolve(None, tmp_path)
    assert default == Store(f"sqlite:///{tmp_path}/mlflow.db", (tmp_path / "mlartifacts").as_uri())
    assert stores.ui_hint(default, tmp_path).endswith("make ui")
    assert f"--backend-store-uri 'sqlite:///{tmp_path}/mlflow.db'" in stores.ui_hint(default, tmp_path / "elsewhere")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker:5000")
    assert stores.resolve(None, tmp_path) == Store("http://tracker:5000", None)
    assert "http://tracker:5000" in stores.ui_hint(stores.resolve(None, tmp_path), tmp_path)
    relative = stores.resolve("sqlite:///other/x.db", tmp_path)
    assert relative == Store(f"sqlite:///{tmp_path}/other/x.db", (tmp_path / "other/mlartifacts").as_uri())
    assert "secret" not in Store("https://me:secret@tracker/mlflow").shown


def test_a_store_that_cannot_be_used_is_one_sentence_within_seconds(tmp_path: Path, store: Store) -> None:
    began = time.monotonic()
    with pytest.raises(UserError, match=r"MLflow server at http://127.0.0.1:9 cannot be reached.*start it"):
        stores.check("http://127.0.0.1:9")
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at as one" * 50)
    with pytest.raises(UserError, match=r"text\.db cannot be written.*not a database"):
        stores.check(stores.resolve("sqlite:///text.db", tmp_path))
    assert time.monotonic() - began < 10
    client = store.client()
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(UserError, match="'gone' was deleted"):
        stores.check(store, "gone")
    stores.check(store, "another")


# --- what is logged --------------------------------------------------------------------------------


def test_a_sweep_is_a_parent_with_a_complete_child_per_trial(tmp_path: Path, store: Store) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "runs/first"
    swept = experiment(space={"method.lambda1": {"grid": [0.0, 0.01]}})
    about = About({"reveals.0": "the words a client uses"}, Dataset("demo", "abc123", "generated", {"num_rows": 7}))
    tracker = Tracker(store, folder, swept, sweep=True, tags={"cluster.nodes": "2"})
    tracker.open()
    tracker.open_trial(case, about)
    for each in rows(3):
        tracker.deliver(case.id, [each])
    tracker.close_trial(case.id, "FINISHED")
    tracker.close(best=(case, rows(3)))

    client = store.client()
    parent, child = client.get_run(run_id(folder)), client.get_run(run_id(folder / case.id))
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")
    assert (parent.info.run_name, child.info.run_name) == ("first", "01-kteps lambda1=0.01")
    assert parent.data.tags["best.case"] == case.id
    assert parent.data.metrics["best.Ap_val"] == pytest.approx(0.73)
    assert parent.data.params["space.method.lambda1.grid.1"] == "0.01"

    path = client.download_artifacts(child.info.run_id, "experiment.yaml", str(tmp_path))
    written = yaml.safe_load(Path(path).read_text())
    left = {key: value for key, value in written.items() if key not in ("space", "tune", "baselines")}
    assert child.data.params == flatten(left)
    assert child.data.params["uplink.0.gaussian.sigma"] == "0.01"
    assert child.data.params["training.optimizer.persist"] == "false"
    assert Experiment.model_validate(written) == case.experiment

    tags = child.data.tags
    expected = {"method": "kteps", "corpus": "demo", "seed": "0", "baseline": "false", "cluster.nodes": "2"}
    expected |= {"fedtext.run": "first", "fedtext.case": case.id, "reveals.0": "the words a client uses"}
    assert expected.items() <= tags.items()
    assert {"version.python", "version.torch", "version.ray", "version.mlflow"} <= tags.keys()
    assert [(each.step, each.timestamp) for each in client.get_metric_history(child.info.run_id, "Ag")] == [
        (1, 1_700_000_005_000),
        (2, 1_700_000_010_000),
        (3, 1_700_000_015_000),
    ]
    (used,) = child.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("demo", "abc123")
    assert (used.tags[0].key, used.tags[0].value) == ("mlflow.data.context", "training")

    table = table_of(store, child.info.run_id)
    assert list(table.columns) == ["client", "round", "Ag"]
    assert len(table) == 6
    assert json.loads(tags["mlflow.loggedArtifacts"]) == [{"path": "clients.json", "type": "table"}]
    assert child.info.artifact_uri.startswith((tmp_path / "mlartifacts").as_uri())


def test_a_single_run_has_no_parent_and_carries_the_name_of_the_run(tmp_path: Path, store: Store) -> None:
    case, folder = Planned("00-kteps", "kteps", False, experiment()), tmp_path / "runs/once"
    tracker = Tracker(store, folder, case.experiment, sweep=False)
    tracker.open()
    tracker.open_trial(case)
    tracker.deliver(case.id, [row(1)])
    tracker.close_trial(case.id, "FAILED", "client dvd failed in round 2:\n its loss is not finite")
    tracker.close("FAILED")
    (found,) = store.client().search_runs(["1"])
    assert (found.info.run_name, found.info.status) == ("once", "FAILED")
    assert found.data.tags["error"] == "client dvd failed in round 2: its loss is not finite"
    assert "mlflow.parentRunId" not in found.data.tags
    assert not (folder / "tracking.json").exists()


def test_large_histories_and_many_parameters_are_sent_in_batches(tmp_path: Path, store: Store) -> None:
    client = store.client()
    mirror = Mirror(tmp_path / "case", store.shown)
    mirror.open(Description("large", START, params={f"key.{n}": "x" * 500 for n in range(230)}))
    mirror.offer([row(n) for n in range(1, 401)])
    mirror.deliver_records(client, client.create_experiment("large"), None)
    found = client.get_run(str(mirror.run_id))
    assert len(found.data.params) == 230
    assert steps(client, found.info.run_id, "loss") == list(range(1, 401))
    wide = row(1) | {"metrics": {f"m{n}": float(n) for n in range(2500)}}
    sizes = [len(points) for _, points in metric_batches([wide, row(2)])]
    assert max(sizes) <= 1000
    assert sum(sizes) == 2500 + 6


def test_names_and_values_are_those_of_the_yaml() -> None:
    flat = flatten({"a": {"b": [1, {"c": None}], "d": True}, "e": [], "url": "http://me:secret@host/x", "lr": 1e-05})
    assert flat == {"a.b.0": "1", "a.b.1.c": "null", "a.d": "true", "url": "http://me:***@host/x", "lr": "1e-05"}
    assert flatten({"long": "x" * 9000, "odd#name": 1}) == {"long": "x" * 500, "odd_name": "1"}


# --- once, and in the same run --------------------------------------------------------------------------------


def test_a_resumed_sweep_continues_its_runs_and_rows_offered_again_stand_once(tmp_path: Path, store: Store) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    first = Tracker(store, folder, experiment(), sweep=True)
    first.open()
    first.open_trial(case)
    first.deliver(case.id, rows(2))
    first.close_trial(case.id, "FAILED", "a cause")
    first.close("KILLED")
    ids = run_id(folder), run_id(folder / case.id)

    second = Tracker(store, folder, experiment(), sweep=True)
    second.open()
    second.open_trial(case)
    client = store.client()
    assert [client.get_run(each).info.status for each in ids] == ["RUNNING", "RUNNING"]
    replayed = row(2) | {"time": START + 99}  # computed again after the process died, at another time
    for offered in (rows(1), [replayed], rows(3), rows(3)):
        second.deliver(case.id, offered)
    second.close_trial(case.id, "FINISHED")
    second.close()
    assert (run_id(folder), run_id(folder / case.id)) == ids
    assert len(client.search_runs(["1"])) == 2
    found = client.get_run(ids[1])
    assert found.info.status == "FINISHED"
    assert "error" not in found.data.tags
    for name in ("Ag", "loss", "round_seconds"):
        assert steps(client, ids[1], name) == [1, 2, 3]
    assert len(table_of(store, ids[1])) == 6

    third = Tracker(store, folder, experiment(), sweep=True)
    third.open()
    third.settle(case, rows(3), "FINISHED")
    third.close()
    assert client.get_run(ids[1]).info.end_time == found.info.end_time


def test_a_process_that_dies_while_a_run_is_created_does_not_create_it_twice(tmp_path: Path, store: Store) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    first = Tracker(store, folder, experiment(), sweep=True)
    first.open()
    first.open_trial(case)
    state = json.loads((folder / case.id / "tracking.json").read_text())
    (folder / case.id / "tracking.json").write_text(json.dumps(state | {"run_id": None}))  # as it was just before
    second = Tracker(store, folder, experiment(), sweep=True)
    second.open()
    second.open_trial(case)
    second.deliver(case.id, rows(1))
    assert run_id(folder / case.id) == state["run_id"]
    assert len(store.client().search_runs(["1"])) == 2


def test_a_run_that_was_deleted_in_mlflow_begins_anew_with_all_its_rows(tmp_path: Path, store: Store) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    first = Tracker(store, folder, case.experiment, sweep=False)
    first.open_trial(case)
    first.deliver(case.id, rows(2))
    old, client = run_id(folder / case.id), store.client()
    client.delete_run(old)
    second = Tracker(store, folder, case.experiment, sweep=False)
    second.open_trial(case)
    second.deliver(case.id, rows(3))
    second.close_trial(case.id, "FINISHED")
    new = run_id(folder / case.id)
    assert new != old
    assert steps(client, new, "loss") == [1, 2, 3]
    assert client.get_run(new).data.params["method.name"] == "kteps"
    assert len(table_of(store, new)) == 6


# --- a server that dies --------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert isinstance(port, int)
    return port


@contextmanager
def server(base: Path, port: int) -> Iterator[None]:
    """``mlflow server`` on ``base``'s database, killed with its workers at the end."""
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{base}/mlflow.db", "--artifacts-destination", str(base / "files")]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (base / "server.log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        for _ in range(480):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (base / "server.log").read_text()
                time.sleep(0.25)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_rows_that_a_dead_server_missed_arrive_exactly_once(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, folder, port = kteps(1, 0.01, 6), kteps(2, 0.1, 6), tmp_path / "run", free_port()
    remote, history = Store(f"http://127.0.0.1:{port}"), rows(6, 6)
    tracker = Tracker(remote, folder, experiment(), sweep=True, retry_seconds=0)
    with server(tmp_path, port):
        stores.check(remote)
        tracker.open()
        tracker.open_trial(one)
        tracker.deliver(one.id, history[:2])
    tracker.deliver(one.id, history[2:3])
    tracker.deliver(one.id, history[3:4])
    tracker.open_trial(two)
    tracker.deliver(two.id, history)
    tracker.close_trial(two.id, "FAILED", "a cause")
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert re.match(
        rf"MLflow at http://127.0.0.1:{port} did not take .* connection was (refused|cut).* training goes on", said[0]
    )
    assert json.loads((folder / one.id / "tracking.json").read_text())["last_round"] == 2
    assert len((folder / two.id / "spool.jsonl").read_text().splitlines()) == 6
    with server(tmp_path, port):
        tracker.deliver(one.id, history[4:5])
        first, second = run_id(folder / one.id), run_id(folder / two.id)
        assert steps(store.client(), first, "loss") == [1, 2, 3, 4, 5]
        tracker.deliver(one.id, history)
        tracker.close_trial(one.id, "FINISHED")
        tracker.close(best=(one, history))
        for each in (first, second):
            table = table_of(remote, each)
            assert sorted(zip(table["round"], table["client"], strict=True)) == [
                (number, name) for number in range(1, 7) for name in sorted(CLIENTS)
            ]
    client = store.client()  # the database itself: no server stands before it any more
    for each, status in ((first, "FINISHED"), (second, "FAILED")):
        assert client.get_run(each).info.status == status
        for name in ("loss", "Ag"):
            assert steps(client, each, name) == [1, 2, 3, 4, 5, 6]
    assert len(client.search_runs(["1"])) == 3
    assert not list(folder.glob("*/spool.jsonl"))
    assert capsys.readouterr().err == ""


def test_a_sweep_without_its_server_is_spooled_and_a_later_tracker_delivers_all_of_it(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    case, folder = kteps(1, 0.01), tmp_path / "run"
    away = Tracker(Store(f"http://127.0.0.1:{free_port()}"), folder, experiment(), sweep=True)
    began = time.monotonic()
    away.open()
    away.open_trial(case, About(dataset=Dataset("demo", "abc")))
    for each in rows(3):
        away.deliver(case.id, [each])
    away.close_trial(case.id, "FAILED", "a cause")
    away.close(best=(case, rows(3)))
    assert time.monotonic() - began < 15
    assert [json.loads(line) for line in (folder / case.id / "spool.jsonl").open()] == rows(3)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 2
    assert "lacks 3 rounds of 2 runs" in said[1]
    assert "--resume run" in said[1]

    later = Tracker(store, folder, experiment(), sweep=True)
    later.open()
    found = store.client().get_run(run_id(folder / case.id))
    assert (found.info.status, found.data.tags["error"]) == ("FAILED", "a cause")
    assert steps(store.client(), found.info.run_id, "loss") == [1, 2, 3]
    assert found.data.params["method.lambda1"] == "0.01"
    assert found.data.tags["mlflow.parentRunId"] == run_id(folder)
    assert found.inputs.dataset_inputs[0].dataset.digest == "abc"
    assert len(table_of(store, found.info.run_id)) == 6
    later.close(best=(case, rows(3)))
    assert store.client().get_run(run_id(folder)).data.tags["best.case"] == case.id
    assert not list(folder.glob("*/spool.jsonl"))
    assert capsys.readouterr().err == ""


# --- the display --------------------------------------------------------------------------------


def test_plain_progress_is_single_lines_with_what_matters() -> None:
    out, now = io.StringIO(), [0.0]
    case = kteps(3, 0.01, 10)
    with PlainProgress([case, kteps(4, 0.1, 10)], out, clock=lambda: now[0]) as display:
        display.start(case)
        for number in range(1, 11):
            now[0] += 0.4 if number < 10 else 0.01
            display.row(case.id, row(number, last=number == 10))
            display.row(case.id, row(number, last=number == 10))
        display.finish(case.id, "finished")
        display.start(kteps(4, 0.1, 10), rows(4, 10))
        display.finish("04-kteps", "failed", "client dvd failed:\x1b[31m\n its loss is not finite")
    text = out.getvalue()
    assert re.search(r"^03-kteps lambda1=0.01  started  10 rounds$", text, re.M)
    assert re.search(
        r"^03-kteps lambda1=0.01  round 4/10  loss 0.125  Ag 74.0  up 16.0 MB down 24 MB  4.1 s/round  ETA 25 s$",
        text,
        re.M,
    )
    assert re.findall(r"round (\d+)/10  loss", text) == ["1", "4", "7", "10"]  # one a second, and the last
    assert re.search(r"^03-kteps lambda1=0.01  round 10/10 .*Ag 80.0  Ap 82.0", text, re.M)
    assert "04-kteps lambda1=0.1  goes on after round 4/10" in text
    assert "04-kteps lambda1=0.1  failed after round 4/10: client dvd failed:[31m its loss is not finite" in text
    assert "2 of 2 trials done, 1 failed, " in text
    assert all(character.isprintable() for character in text.replace("\n", ""))


def test_live_progress_shows_every_trial_and_counts_those_without_room() -> None:
    cases = [kteps(number, 0.01, 10) for number in range(40)]
    display = LiveProgress(cases, Console(file=io.StringIO(), force_terminal=True, width=120, height=20, record=True))
    for number in range(1, 4):
        display.start(cases[30]) if number == 1 else None
        display.row("30-kteps", row(number))
    display.start(cases[39])
    display.finish("39-kteps", "failed", "a cause")
    display.restore(cases[0], rows(10, 10), "finished")
    display.console.print(display.render())
    text = display.console.export_text()
    assert re.search(r"30-kteps lambda1=0.01 +running +3/10 +0.167 +73.0 +30 MB +4.1 +29 s", text)
    assert re.search(r"39-kteps lambda1=0.01 +failed +0/10", text)
    assert "39-kteps lambda1=0.01: a cause" in text
    assert re.search(r"00-kteps lambda1=0.01 +finished +10/10", text)
    assert "... and 26 more trials" in text
    assert "2 of 40 trials done, 1 running, 1 failed" in text
    assert isinstance(progress(cases, io.StringIO()), PlainProgress)


def test_numbers_are_written_for_people() -> None:
    assert [data_size(n) for n in (0, 532, 12_100_000, 80_000_000, 2.4e12)] == [
        "0 B",
        "532 B",
        "12.1 MB",
        "80 MB",
        "2.4 TB",
    ]
    assert [duration(s) for s in (4.1, 28.4, 185, 7800)] == ["4.1 s", "28 s", "3 min 05 s", "2 h 10 min"]


# --- the table --------------------------------------------------------------------------------


def outcomes_of_a_sweep() -> tuple[list[Planned], dict[str, Outcome]]:
    cases = [
        Planned("00-fedavg", "fedavg", True, experiment("fedavg")),
        kteps(1, 0.0),
        kteps(2, 0.01),
        kteps(3, 0.1),
        kteps(4, 1.0),
    ]
    return cases, {
        "00-fedavg": Outcome("finished", tuple(rows(3, level=0.9))),
        "01-kteps": Outcome("finished", tuple(rows(3, level=0.6))),
        "02-kteps": Outcome("finished", tuple(rows(3, level=0.8))),
        "03-kteps": Outcome("failed", tuple(rows(1)), "client dvd failed in round 2: its loss is not finite"),
        "04-kteps": Outcome("stopped", (row(1, loss=float("nan")),)),
    }


def test_the_table_is_sorted_marks_baselines_and_ends_with_failures() -> None:
    cases, outcomes = outcomes_of_a_sweep()
    order = [case.id for case in rank(cases, outcomes, "Ap_val", "max")]
    assert order == ["00-fedavg", "02-kteps", "01-kteps", "04-kteps", "03-kteps"]
    assert [case.id for case in rank(cases, outcomes, "loss", "min")][-2:] == ["04-kteps", "03-kteps"]
    winner = best(cases, outcomes, "Ap_val", "max")
    assert winner is not None
    assert winner.id == "02-kteps"  # a baseline is no candidate
    assert best(cases[3:], outcomes, "Ap_val", "max") is None
    out = io.StringIO()
    print_table(cases, outcomes, "Ap_val", "max", out)
    text = out.getvalue().splitlines()
    assert text[0].split() == [
        *("#", "trial", "method", "lambda1", "Ag", "Ap", "Ap_val", "loss"),
        *("bytes/client/round", "s/round", "rounds", "status"),
    ]
    assert text[2].split()[:8] == ["1", "00-fedavg", "(baseline)", "fedavg", "-", "93.0", "95.0", "93.0"]
    assert text[3].split() == [
        *("2", "02-kteps", "kteps", "0.01", "83.0", "85.0", "83.0", "0.167"),
        *("5.0", "MB", "4.10", "3/3", "finished"),
    ]
    assert text[6].split()[0] == "-"
    assert text[7] == "03-kteps lambda1=0.1 failed: client dvd failed in round 2: its loss is not finite"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_leaves_out_what_matters_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    print_table(*outcomes_of_a_sweep(), "Ap_val", "max", out)
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert text[0].split() == ["#", "trial", "lambda1", "Ag", "Ap", "Ap_val", "status"]
    assert text[2].split() == ["2", "02-kteps", "0.01", "83.0", "85.0", "83.0", "finished"]
    assert text[6].endswith("too narrow: method, loss, bytes/client/round, s/round, rounds")
    assert isinstance(progress([], out), LiveProgress)


def test_sorting_by_a_test_metric_is_called_what_it_is() -> None:
    _, outcomes = outcomes_of_a_sweep()
    assert len(notes(outcomes, "Ap_val", "max")) == 1
    said = notes(outcomes, "Ap", "max")[1]
    assert "selection on the test split" in said
    assert "tune.metric=Ap_val" in said
    assert "corpus.validation" in notes(outcomes, "Ag", "max")[1]
    assert "not sorted" in notes(outcomes, "AUC", "max")[0]


# --- Tune --------------------------------------------------------------------------------


def trainable(config: dict[str, Any]) -> None:
    """Reports rounds as trials do; some cases end early in their own ways."""
    case = config["case"]
    for number in range(1, 4):
        if case == "02-kteps" and number == 2:
            tune.report({"error": "client dvd failed in round 2: its loss is not finite"})
            return
        if case == "03-kteps" and number == 2:
            raise ClientError("books", 2, "out of memory")
        tune.report({"round": number, "row": row(number, last=number == 3)})


@pytest.mark.ray
def test_tune_drives_tracking_and_progress_and_no_fault_in_them_ends_a_sweep(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [kteps(number, 0.01 * number) for number in (0, 1, 2, 3, 4)]
    before, ended, out = {"01-kteps": rows(1)}, [], io.StringIO()

    def history(case_id: str) -> list[Row]:
        if case_id == "04-kteps":
            raise KeyError("a fault in recording")
        return before.get(case_id, [])

    tracker, display = Tracker(store, tmp_path / "run", experiment(), sweep=True), PlainProgress(cases, out, every=0)
    tracker.open()
    callback = TrialCallback(cases, tracker, display, history, on_end=lambda case_id, outcome: ended.append(case_id))
    callback.restore("00-kteps", Outcome("finished", tuple(rows(3))))
    assert pickle.loads(pickle.dumps(callback)).__dict__ == {}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}),
            param_space={"case": tune.grid_search([case.id for case in cases[1:]])},
            run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), callbacks=[callback], verbose=0),
        ).fit()
    finally:
        ray.shutdown()
    tracker.close()

    ends = {case_id: (outcome.status, len(outcome.rows)) for case_id, outcome in callback.outcomes.items()}
    assert ends.pop("04-kteps")[0] in ("finished", "stopped")
    assert ends == {
        "00-kteps": ("finished", 3),
        "01-kteps": ("finished", 3),
        "02-kteps": ("failed", 1),
        "03-kteps": ("failed", 1),
    }
    assert callback.outcomes["02-kteps"].error == "client dvd failed in round 2: its loss is not finite"
    assert callback.outcomes["03-kteps"].error == "client books failed in round 2: out of memory"
    assert sorted(ended) == ["01-kteps", "02-kteps", "03-kteps", "04-kteps"]
    client = store.client()
    states = {case.id: client.get_run(run_id(tmp_path / "run" / case.id)).info.status for case in cases[:4]}
    assert states == {"00-kteps": "FINISHED", "01-kteps": "FINISHED", "02-kteps": "FAILED", "03-kteps": "FAILED"}
    for case_id in ("00-kteps", "01-kteps"):
        assert steps(client, run_id(tmp_path / "run" / case_id), "Ag") == [1, 2, 3]
    assert "00-kteps lambda1=0  finished earlier  round 3/3" in out.getvalue()
    assert "01-kteps lambda1=0.01  goes on after round 1/3" in out.getvalue()
    assert "03-kteps lambda1=0.03  failed after round 1/3: client books failed in round 2" in out.getvalue()
    said = capsys.readouterr().err
    assert said.count("recording a trial failed in on_trial_start (KeyError: 'a fault in recording')") == 1
