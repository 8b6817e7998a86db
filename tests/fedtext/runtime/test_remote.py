"""Files by URI: on a local object store that speaks S3, and on this machine."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pyarrow.fs
import pytest

import fedtext
from fedtext.api.model import Model
from fedtext.errors import UserError
from fedtext.runtime import remote
from fedtext.runtime.folders import (
    cache_folder,
    check_folder,
    folder_of,
    folders,
    located,
    origin,
    present,
    stored,
    written_to,
)
from fedtext.runtime.remote import Remote, is_uri
from sweeps.names import find, places
from sweeps.places import home
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


def test_a_local_folder_by_its_uri_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    assert folder_of(f"file://{tmp_path}/a%20b", "--data") == tmp_path / "a b"
    assert folder_of(str(tmp_path), "--data") == tmp_path
    assert located(f"file://{tmp_path}/a%20b", [], "corpus.path") == tmp_path / "a b"
    assert located(f"file://{tmp_path}/none", [], "corpus.path") is None


def test_what_a_uri_is() -> None:
    uris = ["s3://bucket/x", "S3://bucket/x", "gs://b", "hdfs://name:8020/x", "file:///tmp", "abfss://c@a.host/x"]
    assert [is_uri(name) for name in uris] == [True] * len(uris)
    others = ["reviews.csv", "owner/name", "https://host/x", "hf://datasets/x", "C:/x", "s3:/x", "s3"]
    assert [is_uri(name) for name in others] == [False] * len(others)


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://{'AKID'}:{SECRET}@bucket/folder",
        f"s3://bucket/folder?secret_key={SECRET}",
        f"gs://bucket/folder?access_token={SECRET}",
        f"abfs://account:{SECRET}@container/folder",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(UserError, match=r"--data: the URI of \w+ contains credentials.*leave them out") as refused:
        Remote(uri, "--data")
    assert SECRET not in str(refused.value)
    assert "AKID:" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("s3:/bucket/runs", "write s3://, or give a path"),
        ("s3a://bucket/runs", "s3a: is none of s3, gs, .*, or give a path"),
        ("ftp://host/runs", "ftp: is none of s3, gs, "),
    ],
)
def test_what_is_meant_as_a_uri_is_no_folder_of_that_name(name: str, why: str) -> None:
    for asked in nonempty([folder_of, lambda name, what: places(name)]):
        with pytest.raises(UserError, match=f"storage: {name} is no URI that can be used: {why}"):
            asked(name, "storage")
    for path in nonempty(["a:/b", "runs/s3:/x", "/s3://x", "s3:x", "a b:/c"]):
        assert folder_of(path, "storage") == Path(path)


def test_a_folder_without_a_name_is_not_the_working_folder() -> None:
    asked = {
        "storage": places,
        "--data": lambda name: folder_of(name, "--data"),
        "the folder": written_to,
        "out": lambda name: fedtext.run("demo.yaml", out=name),
    }
    for what, use in nonempty(asked.items()):
        with pytest.raises(UserError, match=f"^{what}: '' is no folder: name one$"):
            use("")


def test_the_home_folder_of_nobody_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^--data: ~no-such-user/x begins with a home folder that there is not"):
        folder_of("~no-such-user/x", "--data")


TINY = {"corpus": {"name": "demo", "max_length": 30}, "method": "fedavg", "training": {"rounds": 1}}
ELSEWHERE: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "checkpoint": ("model.checkpoint", lambda path: {"model": {"name": "transformer", "checkpoint": path}}),
    "pieces": (
        "corpus.text.pieces.checkpoint",
        lambda path: {"corpus": {"name": "demo", "text": {"pieces": {"checkpoint": path}}}},
    ),
    "vectors": (
        "model.embedding.init.file.path",
        lambda path: {"model": {"embedding": {"dim": 6, "init": {"file": {"path": path}}}}},
    ),
    "plug-in": ("plugins", lambda path: {"plugins": [path]}),
    "vectors of an audit": (
        "audits: gradient_inversion.unrelated",
        lambda path: {"audits": [{"gradient_inversion": {"unrelated": path}}]},
    ),
    "table": (
        "corpus.path",
        lambda path: {"corpus": {"name": "table", "path": path, "text": "text", "label": "label"}},
    ),
    "reddit": ("corpus.file", lambda path: {"corpus": {"name": "reddit", "file": path}, "model": "gru_lm"}),
}


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("path", ["~no-such-user/x.py", ""])
def test_keys_with_a_path_name_a_home_folder_that_there_is_not(name: str, path: str) -> None:
    """An empty path is none either: it would be the working folder."""
    key, keys = ELSEWHERE[name]
    why = "'' is n(o path: write one|ot a plug-in: name a file)" if not path else f"{path} begins with a home folder"
    with pytest.raises(UserError, match=f"(?s)^(the experiment: )?{key}: {why}"):
        fedtext.run({"name": "x", **TINY, **keys(path)})


def test_a_name_that_is_too_long_for_a_path_is_one_sentence(tmp_path: Path) -> None:
    uses = {
        "--data": lambda name: folder_of(name, "--data"),
        "storage": places,
        "report": lambda name: find(tmp_path, name, "report"),
    }
    for what, use in nonempty(uses.items()):
        with pytest.raises(UserError, match=f"^{what}: x* is too long for a path: write a shorter one$"):
            use("x" * 300)


def test_variables_with_a_path_name_a_home_folder_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, use in nonempty((("FEDTEXT_CACHE", cache_folder), ("FEDTEXT_HOME", home))):
        monkeypatch.setenv(variable, "~no-such-user/x")
        with pytest.raises(UserError, match=rf"^\${variable}: ~no-such-user/x begins with a home folder"):
            use()


def test_a_uri_without_a_bucket_is_refused() -> None:
    with pytest.raises(UserError, match=r"storage: s3:///x names no bucket: write s3://BUCKET/FOLDER"):
        Remote("s3:///x", "storage")


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
