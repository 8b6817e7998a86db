"""Files by URI: on a local object store that speaks S3, and on this machine."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pyarrow.fs
import pytest

from fedtext.api.model import Model
from fedtext.errors import UserError
from fedtext.runtime import remote
from fedtext.runtime.folders import (
    check_folder,
    folder_of,
    folders,
    located,
    origin,
    present,
    stored,
)
from fedtext.runtime.remote import Remote
from tests.loops import nonempty
from tests.stores import BUCKET, SECRET, Store, object_store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    with object_store(monkeypatch, tmp_path / "cache") as store:
        yield store


def test_a_file_is_written_listed_read_and_removed(store: Store) -> None:
    folder = Remote(store.uri("runs"), "storage")
    assert (folder.info(), folder.files(), (folder / "a.txt").read()) == (None, {}, None)
    store.denied.add("POST")  # of an upload in several parts
    (folder / "a b/c%20d.txt").write(b"one")
    assert store.get("runs/a b/c%20d.txt") == b"one"
    assert {name: info.size for name, info in folder.files().items()} == {"a b/c%20d.txt": 3}
    assert (folder / "a b" / "c%20d.txt").read() == b"one"
    (folder / "a b/c%20d.txt").remove()
    (folder / "a b/c%20d.txt").remove()
    assert store.files() == []


@pytest.mark.parametrize("denied", [[], ["POST"]], ids=["at once", "one by one"])
def test_a_folder_is_removed_with_all_that_is_in_it(store: Store, denied: list[str]) -> None:
    folder = Remote(store.uri("runs"), "storage")
    for name in ("a/b/one.txt", "a/two.txt", "c.txt"):
        (folder / name).write(b"x")
    store.denied.update(denied)
    (folder / "a").remove_folder()
    (folder / "none").remove_folder()
    assert store.files() == ["runs/c.txt"]
    assert bool(store.refused) == bool(denied)
    assert ("a" in store.folders("runs")) == bool(denied), "an empty object"


def test_names_that_lead_out_of_a_folder_are_left_out(store: Store, tmp_path: Path) -> None:
    client = boto3.client("s3", endpoint_url=f"http://{store.endpoint}", region_name="us-east-1")
    for name in ("a/in.txt", "a/../out.txt", f"a/{tmp_path}/absolute.txt", "a//b.txt", "a/./c.txt", "a/..d/e..txt"):
        client.put_object(Bucket=BUCKET, Key=f"runs/{name}", Body=b"x")
    assert set(Remote(store.uri("runs/a"), "storage").files()) == {"in.txt", "..d/e..txt"}


def test_names_of_a_remote_show_no_query(store: Store) -> None:
    file = Remote(store.uri("runs/a/b.txt"), "storage")
    assert (str(file), file.name, str(file.parent)) == (
        "s3://fedtext-tests/runs/a/b.txt",
        "b.txt",
        "s3://fedtext-tests/runs/a",
    )
    assert file.parent.uri == store.uri("runs/a")


def test_a_fetched_file_is_whole_or_not_there(store: Store, tmp_path: Path) -> None:
    content = os.urandom((1 << 23) + 5)  # more than one chunk
    store.put("big", content)
    Remote(store.uri("big"), "x").fetch(tmp_path / "deep/big", 0o600)
    assert (tmp_path / "deep/big").read_bytes() == content
    assert (tmp_path / "deep/big").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UserError, match="s3://fedtext-tests/none cannot be read"):
        Remote(store.uri("none"), "x").fetch(tmp_path / "deep/none")
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["big"]


def test_options_are_added_unless_a_uri_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def from_uri(uri: str) -> tuple[str, str]:
        asked.append(uri)
        return "filesystem", ""

    monkeypatch.setattr(pyarrow.fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    for uri in ("gs://b", "gcs://b?scheme=http", "gs://b?retry_limit_seconds=5", "s3://b", "abfs://b"):
        remote._root.__wrapped__(uri)
    assert asked == [
        "gs://b?retry_limit_seconds=60",
        "gcs://b?scheme=http&retry_limit_seconds=60",
        "gs://b?retry_limit_seconds=5",
        "s3://b?allow_delayed_open=true",
        "abfs://b",
    ]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a store that accepts connections and never answers, without its path."""
    monkeypatch.setattr(remote, "_said", {})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = f"endpoint_override=127.0.0.1:{server.getsockname()[1]}&scheme=http&region=us-east-1"
        yield f"s3://silent/{{}}?{options}"


def test_what_is_waited_for_is_said_once_and_given_up(
    silent: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request takes 3 s without an answer, and is not tried again here."""
    monkeypatch.setattr(remote, "SLOW_S", 0.5)
    monkeypatch.setattr(remote, "RETRIES", 0)
    for name in nonempty(["a", "b"]):
        with pytest.raises(UserError, match=f"storage: s3://silent/{name} cannot be read .*Timeout was reached"):
            Remote(silent.format(name), "storage").info()
    assert caplog.messages == [
        "storage: waiting for s3://silent/a to be read; without an answer of the store that fails within a minute"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("done", ["read", "written"])
def test_a_store_without_an_answer_is_given_up_within_the_minute_that_is_said(
    done: str, silent: str, caplog: pytest.LogCaptureFixture
) -> None:
    place, began = Remote(silent.format("a"), "storage"), time.monotonic()
    with pytest.raises(UserError, match=f"s3://silent/a cannot be {done} "):
        place.read() if done == "read" else place.write(b"one")
    assert time.monotonic() - began < 60
    assert remote.SLOW_S < 10
    assert len(caplog.messages) == 1


def test_an_error_of_the_store_is_one_sentence_without_the_secret(store: Store) -> None:
    nowhere = Remote(store.uri("x").replace("fedtext-tests", "no-such-bucket"), "storage")
    with pytest.raises(
        UserError, match=r"storage: s3://no-such-bucket/x cannot be written \(.*does not exist"
    ) as error:
        nowhere.write(b"1")
    assert "\n" not in str(error.value)
    assert SECRET not in str(error.value)


def test_a_copy_follows_its_origin(store: Store) -> None:
    store.put("data/fdu_mtl/a.csv", b"one")
    data = folder_of(store.uri("data"), "--data")
    check_folder(data)
    assert list(data.rglob("*.csv")) == [], "files are fetched when they are asked for"
    file = data / "fdu_mtl/a.csv"
    assert present(file)
    assert file.read_bytes() == b"one"
    assert str(origin(file)) == "s3://fedtext-tests/data/fdu_mtl/a.csv"
    before = file.stat().st_ino
    assert present(file)
    assert file.stat().st_ino == before, "what has not changed is not fetched again"
    store.put("data/fdu_mtl/a.csv", b"twice")
    assert present(file)
    assert file.read_bytes() == b"twice"
    store.remove("data/fdu_mtl/a.csv")
    assert not present(file)
    assert not file.exists()
    assert not present(data / "b.csv")


def test_a_folder_of_a_copy_has_the_files_of_its_origin(store: Store) -> None:
    for name in ("pos/1.txt", "pos/2.txt", "neg/1.txt", ".hidden/3.txt"):
        store.put(f"texts/{name}", name.encode())
    folder = located(store.uri("texts"), [], "corpus.path")
    assert folder is not None
    names = ["neg/1.txt", "pos/1.txt", "pos/2.txt"]
    assert sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.txt")) == names
    store.remove("texts/pos/2.txt")
    assert located(store.uri("texts"), [], "corpus.path") == folder
    assert sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.txt")) == names[:2]


def test_of_a_folder_that_is_no_model_nothing_is_fetched_to_say_so(store: Store) -> None:
    """A run has checkpoints beside its model, with the private states of clients."""
    store.put("trial/model/model.json", b"{}")
    store.put("trial/checkpoint/clients.states", b"private")
    with pytest.raises(UserError, match=r"has no model\.json, and .*trial/model has one: give .*trial/model"):
        Model.load(store.uri("trial"))
    assert not list(folder_of(store.uri("trial"), "the model").rglob("*.states"))


def test_a_copy_is_readable_by_its_owner_alone(store: Store) -> None:
    assert folder_of(store.uri("data"), "--data").stat().st_mode & 0o777 == 0o700


def test_a_copy_is_stored_by_its_uri(store: Store, tmp_path: Path) -> None:
    data = folder_of(store.uri("data"), "--data")
    assert stored(data) == store.uri("data")
    assert folder_of(stored(data), "--data") == data
    assert stored(tmp_path) == str(tmp_path)


def test_a_missing_folder_is_named_by_its_uri(store: Store) -> None:
    with pytest.raises(UserError, match=r"data: there is no folder s3://fedtext-tests/none$"):
        check_folder(folder_of(store.uri("none"), "data"))


def test_the_variable_may_be_a_uri(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("data/words.txt", b"x")
    monkeypatch.setenv("FEDTEXT_DATA", store.uri("data"))
    found = located("words.txt", folders(None), "path")
    assert found is not None
    assert found.read_bytes() == b"x"


class Elsewhere:
    """The files of this machine as a filesystem without atomic writes, whose ``move`` does something else before."""

    type_name = "hdfs"

    def __init__(self, before_move: Callable[[], None]) -> None:
        from pyarrow.fs import LocalFileSystem

        self.files, self.before_move = LocalFileSystem(), before_move

    def __getattr__(self, name: str) -> Any:
        return getattr(self.files, name)

    def move(self, draft: str, path: str) -> None:
        self.before_move()
        self.files.move(draft, path)


def test_two_writers_of_a_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, later = Remote(f"file://{tmp_path}/a.txt", "storage"), [b"second"]

    def another() -> None:
        while later:
            file.write(later.pop())
            assert file.read() == b"second"

    monkeypatch.setattr(remote, "_opened", lambda uri: (Elsewhere(another), f"{tmp_path}/a.txt"))
    file.write(b"first")
    assert file.read() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_write_that_fails_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError("no space is left")

    monkeypatch.setattr(remote, "_opened", lambda uri: (Elsewhere(full), f"{tmp_path}/a.txt"))
    with pytest.raises(UserError, match=r"cannot be written \(no space is left\)"):
        Remote(f"file://{tmp_path}/a.txt", "storage").write(b"first")
    assert list(tmp_path.iterdir()) == []
