"""Paths and URIs as they are given: what they name, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedtext
from fedtext.errors import UserError
from fedtext.runtime.folders import (
    cache_folder,
    folder_of,
    located,
    written_to,
)
from fedtext.runtime.paths import is_uri
from fedtext.runtime.remote import Remote
from sweeps.names import find, places
from sweeps.places import home
from tests.loops import nonempty
from tests.stores import SECRET


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
