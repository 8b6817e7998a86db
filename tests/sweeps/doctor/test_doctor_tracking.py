"""The doctor's checks of MLflow stores, on real faults."""

import socket
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dashboards.store import Store
from sweeps.doctor import software
from sweeps.doctor.finding import exit_status
from sweeps.doctor.tracking import reachable, server_version
from tests.stores import SECRET
from tests.sweeps.doctor.findings import only
from tests.tracking import free_port, server


def test_a_store_that_is_not_there_yet_is_not_created(tmp_path: Path) -> None:
    found = list(reachable(f"sqlite:///{tmp_path}/mlflow.db"))
    assert [finding.status for finding in found] == ["ok"]
    assert list(tmp_path.iterdir()) == []
    assert only(reachable("sqlite:////proc/here/mlflow.db"), "problem").message.startswith(
        "/proc/here/mlflow.db cannot"
    )


def test_a_database_is_written_and_left_as_it_was(tmp_path: Path, ready: Path) -> None:
    database = tmp_path / "mlflow.db"
    database.write_bytes(ready.read_bytes())
    found = list(reachable(f"sqlite:///{database}"))
    assert [finding.status for finding in found] == ["ok"] * 3, found
    with sqlite3.connect(database) as opened:
        (schema,) = opened.execute("SELECT version_num FROM alembic_version").fetchone()
        assert opened.execute("SELECT count(*) FROM experiment_tags").fetchone() == (0,)
    assert f"schema {schema}" in found[0].message


def test_a_database_of_an_older_mlflow_is_a_problem(tmp_path: Path, ready: Path) -> None:
    database = tmp_path / "mlflow.db"
    database.write_bytes(ready.read_bytes())
    with sqlite3.connect(database) as opened:
        opened.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    assert "mlflow db upgrade" in only(reachable(f"sqlite:///{database}"), "problem").message


def test_a_locked_database_is_a_problem(tmp_path: Path, ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "mlflow.db"
    database.write_bytes(ready.read_bytes())
    monkeypatch.setattr("dashboards.store.CHECK_SECONDS", 0.1)
    with sqlite3.connect(database) as opened:
        opened.execute("BEGIN EXCLUSIVE")
        found = only(reachable(f"sqlite:///{database}"), "problem")
    assert "database is locked" in found.message


def test_a_server_that_is_away_is_a_problem() -> None:
    port = free_port()
    found = only(reachable(f"http://127.0.0.1:{port}"), "problem")
    assert f"http://127.0.0.1:{port} cannot be reached: the connection was refused" in found.message


def test_a_server_that_is_not_mlflow_is_a_problem() -> None:
    """A plain web server answers, and knows none of MLflow's addresses."""
    port = free_port()
    argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/proc/self/fd")
    try:
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
        assert exit_status(reachable(f"http://127.0.0.1:{port}")) == 2
    finally:
        process.kill()
        process.wait()


def test_a_real_server_is_written_and_left_as_it_was(tmp_path: Path) -> None:
    """Its address has a password, as one behind a proxy would."""
    port = free_port()
    with server(tmp_path, port):
        found = list(reachable(f"http://me:{SECRET}@127.0.0.1:{port}"))
    assert SECRET not in repr(found)
    assert [finding.status for finding in found] == ["ok"] * 4, found
    assert f"MLflow {software.version_of('mlflow')}" in found[0].message
    assert "files of runs: mlflow-artifacts:/" in found[2].message
    assert not [path for path in tmp_path.rglob("*") if "doctor" in path.name]
    with sqlite3.connect(tmp_path / "mlflow.db") as opened:
        assert opened.execute("SELECT count(*) FROM experiment_tags").fetchone() == (0,)


def test_a_server_that_does_not_say_its_version_is_named_without_its_password() -> None:
    found = server_version(Store(f"http://me:{SECRET}@127.0.0.1"))
    assert (found.status, found.message) == ("warning", "http://me:***@127.0.0.1 does not say its version")


def test_an_account_that_may_not_write_is_a_problem(tmp_path: Path, ready: Path) -> None:
    """A database whose table of tags refuses new rows, as a role without the right to insert would."""
    database = tmp_path / "mlflow.db"
    database.write_bytes(ready.read_bytes())
    with sqlite3.connect(database) as opened:
        opened.execute(
            "CREATE TRIGGER no BEFORE INSERT ON experiment_tags BEGIN SELECT RAISE(ABORT, 'permission denied'); END"
        )
    found = only(reachable(f"sqlite:///{database}"), "problem")
    assert "answers and cannot be written" in found.message
    assert "permission denied" in found.message
