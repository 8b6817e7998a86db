"""Data files are compared with the list of digests beside them."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtext.corpora.base import find
from fedtext.errors import UserError
from fedtext.runtime.digests import verify
from fedtext.runtime.folders import folder_of, located
from tests.stores import Store, object_store


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    with object_store(monkeypatch, tmp_path / "cache") as store:
        yield store


def line(content: bytes, name: str) -> str:
    return f"{hashlib.sha256(content).hexdigest()}  {name}\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "fdu_mtl").mkdir(parents=True)
    (folder / "fdu_mtl" / "a.csv").write_bytes(b"one")
    (folder / "b.csv").write_bytes(b"two")
    (folder / "SHA256SUMS").write_text(line(b"one", "./fdu_mtl/a.csv"))
    return folder


def test_a_corpus_file_that_is_the_listed_one_is_found(data: Path) -> None:
    assert find("fdu", "fdu_mtl", "a.csv", data, "") == data / "fdu_mtl/a.csv"
    assert find("fdu", "fdu_mtl", "b.csv", data, "") == data / "b.csv", "no list names it"


def test_another_file_is_refused(data: Path) -> None:
    (data / "fdu_mtl" / "a.csv").write_bytes(b"onf")
    with pytest.raises(UserError, match=r"fdu_mtl/a\.csv is not the file that .*/data/SHA256SUMS lists .*: copy it"):
        find("fdu", "fdu_mtl", "a.csv", data, "")
    with pytest.raises(UserError, match="is not the file that"):
        located("fdu_mtl/a.csv", [data], "corpus.path")
    with pytest.raises(UserError, match="is not the file that"):
        verify(data / "fdu_mtl", data)
    (data / "fdu_mtl" / "a.csv").write_bytes(b"one")
    assert located("fdu_mtl/a.csv", [data], "corpus.path") == data / "fdu_mtl/a.csv"


def test_a_list_beside_the_file_counts_wherever_the_file_is_named(data: Path) -> None:
    (data / "fdu_mtl" / "SHA256SUMS").write_text(line(b"other", "a.csv"))
    with pytest.raises(UserError, match=r"that .*/fdu_mtl/SHA256SUMS lists"):
        located(str(data / "fdu_mtl/a.csv"), [], "corpus.path")


def test_what_sha256sum_writes_is_read(data: Path) -> None:
    if shutil.which("sha256sum") is None:
        pytest.skip("there is no sha256sum here")
    command = "sha256sum b.csv > SHA256SUMS; sha256sum --binary fdu_mtl/a.csv >> SHA256SUMS"
    subprocess.run(["sh", "-c", command], cwd=data, check=True)
    verify(data, data)
    (data / "fdu_mtl" / "a.csv").write_bytes(b"changed")
    with pytest.raises(UserError, match=r"a\.csv is not the file"):
        verify(data, data)


def test_a_line_of_another_form_is_refused(data: Path) -> None:
    (data / "SHA256SUMS").write_text("d41d8cd98f00b204e9800998ecf8427e  b.csv\n")
    with pytest.raises(UserError, match=r"SHA256SUMS, line 1: not a digest"):
        verify(data / "b.csv", data)


def test_files_on_a_store_are_compared_with_the_list_there(store: Store) -> None:
    store.put("data/imdb/a.csv", b"one")
    store.put("data/SHA256SUMS", line(b"two", "imdb/a.csv").encode())
    folder = folder_of(store.uri("data"), "--data")
    with pytest.raises(UserError, match=r"is not the file that .*SHA256SUMS lists"):
        find("imdb", "imdb", "a.csv", folder, "")
    store.put("data/imdb/a.csv", b"three")  # of another size: a store's times are in seconds
    store.put("data/SHA256SUMS", (line(b"three", "imdb/a.csv") + "\n").encode())
    (folder / "imdb/a.csv").unlink()
    assert find("imdb", "imdb", "a.csv", folder, "").read_bytes() == b"three"
