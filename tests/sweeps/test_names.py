"""Runs by name, by path and by URI."""

import fcntl
import json
import platform.ls
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtext.errors import UserError
from fedtext.runtime import lock
from fedtext.runtime.lock import is_locked
from fedtext.runtime.remote import Remote
from fedtext.state.copy import Copy
from sweeps import names
from sweeps.folder import RunFolder
from tests.stores import Store, object_store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.setattr(lock, "PATIENCE_S", 0.0)
    with object_store(monkeypatch, tmp_path / "cache") as store:
        yield store


def plan(folder: Path) -> str:
    return json.loads((folder / "plan.json").read_text())["command"]


def test_a_run_at_a_uri_is_read_here_while_a_command_works_on_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("runs/first/plan.json", b'{"command": "run"}')
    uri, here, storage = store.uri("runs/first"), tmp_path / "runs" / "first", tmp_path / "elsewhere"
    held = []
    pull = Copy.pull
    monkeypatch.setattr(Copy, "pull", lambda self: (held.append(is_locked(self.folder)), pull(self)))
    assert RunFolder.found(storage, uri, "report").path == here
    assert held == [True], "nobody else writes the folder meanwhile"
    assert not is_locked(here)

    with open(here / ".lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="the run first is being worked on by another command: wait for it"):
            RunFolder.found(storage, uri, "report")  # it may be half there
        Copy(here, Remote(uri, "storage")).take()
        (here / "plan.json").write_text('{"command": "sweep"}')  # what only the command that works on it has
        found = RunFolder.found(storage, uri, "report")
        assert (found.path, plan(here)) == (here, "sweep")
        assert found.again == f"python -m platform.sweep --resume '{uri}'"
        store.put("others/first/plan.json", b"{}")
        with pytest.raises(UserError, match=r"belongs to s3://fedtext-tests/runs/first, not to s3://.*/others/first"):
            RunFolder.found(storage, store.uri("others/first"), "report")
    assert held == [True]


def test_a_run_at_the_uri_of_a_local_folder_is_that_of_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "first"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    assert names.find(tmp_path, f"file://{tmp_path}/a%20b/first", "report") == folder
    assert names.places(f"file://{tmp_path}/a%20b") == (tmp_path / "a b", None)


def test_a_storage_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path / "results"))
    assert names.places("~/runs") == (tmp_path / "me" / "runs", None)
    assert names.places("a~b") == (tmp_path / "results" / "a~b", None)
    with pytest.raises(UserError, match=r"^storage: ~no-such-user/x begins with a home folder that there is not"):
        names.places("~no-such-user/x")


def test_a_run_is_found_by_runs_and_its_name_in_the_folder_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guides name a run runs/NAME, which is in $FEDTEXT_HOME if that is set."""
    folder = tmp_path / "results" / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path / "results"))
    assert names.find(folder.parent, "runs/first", "report") == folder
    assert platform.ls.main(["runs/first"]) == 0
    assert "first  interrupted" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"^report: there is no run runs/second in .*runs; the latest there are first$"):
        names.find(folder.parent, "runs/second", "report")


def test_a_folder_of_a_run_without_ray_is_named_as_such(tmp_path: Path) -> None:
    folder, storage = tmp_path / "first", tmp_path / "runs"
    (folder / "round-000001").mkdir(parents=True)
    with pytest.raises(UserError, match=r"^report: there is no run .*first in .*runs$"):
        names.find(storage, str(folder), "report")  # any folder
    (folder / "experiment.yaml").write_text("name: demo\n")
    with pytest.raises(UserError) as refused:
        names.find(storage, str(folder), "report")
    assert str(refused.value).startswith(f"report: {folder} was made by python -m platform.run --no-ray, which has no ")
    (folder / "plan.json").write_text("{}")
    assert names.find(storage, str(folder), "report") == folder
