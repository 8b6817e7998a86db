"""FDU-MTL: from parquet and from the original files."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from fedtext.corpora.fdu import FDUCorpus, repair
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from tests.data import real_data

ROWS = [
    ("books", "train", 1, "a fine book ."), ("books", "train", 0, "dull ."), ("books", "test", 0, "dull , too ."),
    ("MR", "train", 1, "it's moving . "), ("MR", "test", 1, "moving"),
    ("music", "train", 0, "off key"), ("music", "test", 0, "loud"), ("music", "dev", 0, "not read"),
]  # fmt: skip


def _unlabeled(config: FDUCorpus, data: Path | None) -> list[str]:
    return [" ".join(text.words()) for text in config.read_unlabeled(data, 0)]


def write_parquet(folder: Path, rows: list[tuple[Any, ...]] = ROWS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    columns = dict(zip(("domain", "split", "label", "text"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / "fdu_mtl.parquet")
    unlabeled = {"domain": ["books", "MR"], "split": ["unlabeled"] * 2, "text": ["It's FINE, isn't it?", "it's so"]}
    pq.write_table(pa.table(unlabeled), folder / "fdu_mtl_unlabeled.parquet")
    return folder


@pytest.mark.parametrize("inner", ["", "fdu_mtl"])
def test_fdu_from_parquet(tmp_path: Path, inner: str) -> None:
    write_parquet(tmp_path / inner)
    raw = FDUCorpus().read(tmp_path, 0)
    assert [client.name for client in raw.clients] == ["books", "MR", "music"]
    assert raw.clients[0].train.texts == ["a fine book .", "dull ."]
    assert raw.clients[0].train.labels.tolist() == [1, 0]
    assert raw.clients[2].test.texts == ["loud"]
    assert _unlabeled(FDUCorpus(), tmp_path) == ["it 's fine , is n't it ?", "it's so"]


def test_fdu_is_found_by_environment_and_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTEXT_CACHE", str(write_parquet(tmp_path / "cache")))
    monkeypatch.delenv("FEDTEXT_DATA", raising=False)
    assert len(FDUCorpus().read(None, 0).clients) == 3
    monkeypatch.setenv("FEDTEXT_DATA", str(write_parquet(tmp_path / "named", ROWS[:3])))
    assert len(FDUCorpus().read(None, 0).clients) == 1
    with pytest.raises(UserError, match=r"empty: give its folder with data=FOLDER or \$FEDTEXT_DATA, or .* corpus\.so"):
        FDUCorpus().read(tmp_path / "empty", 0)  # what is named on the command line is not replaced by anything else


def test_fdu_takes_a_subset_of_clients(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    assert [c.name for c in FDUCorpus(clients=("music", "books")).read(tmp_path, 0).clients] == ["books", "music"]
    assert _unlabeled(FDUCorpus(clients=("MR",)), tmp_path) == ["it's so"]
    with pytest.raises(UserError, match=r"no domain 'bocks': did you mean 'books'\?"):
        FDUCorpus(clients=("MR", "bocks")).read(tmp_path, 0)
    with pytest.raises(ValidationError):
        FDUCorpus(clients=())


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([("a", "train", 1, "x"), ("a", "test", 2, "x")], "row 2: label 2"),
        ([("a", "train", 1, "x"), ("a", "test", 1, None)], "row 2: .* missing domain or text"),
        ([("a", "train", 1, "x")], "'a' has no test texts"),
    ],
)
def test_faulty_parquet_is_refused(tmp_path: Path, rows: list[tuple[Any, ...]], complaint: str) -> None:
    write_parquet(tmp_path, rows)
    with pytest.raises(UserError, match=complaint):
        FDUCorpus().read(tmp_path, 0)


def test_what_is_not_such_a_parquet_file_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"domain": ["a"], "split": ["train"], "text": ["x"]}), tmp_path / "fdu_mtl.parquet")
    with pytest.raises(UserError, match="no column 'label'"):
        FDUCorpus().read(tmp_path, 0)
    (tmp_path / "fdu_mtl.parquet").write_text("not parquet")
    with pytest.raises(UserError, match="cannot be read as parquet"):
        FDUCorpus().read(tmp_path, 0)


@pytest.fixture
def original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two domains in the original format, one line of which is not UTF-8."""
    pytest.importorskip("datasets")
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "original"
    folder.mkdir()
    (folder / "MR.task.train").write_bytes(b"1\tcaf\xe9 \x96 good\n0\tna\xc3\xafve \xc3\x85 bad\n\n")
    (folder / "MR.task.test").write_bytes(b"1\ta test\r\n0\t\n")
    (folder / "MR.task.unlabel").write_bytes(b"it's moving\n")
    (folder / "baby.task.train").write_bytes(b"1\tx\n")
    (folder / "baby.task.test").write_bytes(b"0\ty\n")
    (folder / "baby.task.unlabel").write_bytes(b"0\tIt's wet.\n")
    return folder


def test_fdu_from_the_original_files(original: Path) -> None:
    config = FDUCorpus(source=str(original))
    baby, mr = config.read(None, 0).clients
    assert (baby.name, baby.train.texts, baby.test.labels.tolist()) == ("baby", ["x"], [0])
    assert mr.train.texts == ["café – good", "naïve Å bad"]
    assert mr.test.texts == ["a test", ""]
    assert _unlabeled(config, None) == ["it 's wet .", "it's moving"]


@pytest.fixture
def served(original: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(original))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_fdu_from_a_url(served: str) -> None:
    raw = FDUCorpus(source=served, clients=("baby", "MR")).read(None, 0)
    assert raw.clients[1].train.texts == ["café – good", "naïve Å bad"]
    with pytest.raises(UserError, match=r"corpus\.source: the files of http.* cannot be read .*: correct the address"):
        FDUCorpus(source=f"{served}/nowhere", clients=("baby",)).read(None, 0)


def test_faulty_original_files_are_refused(original: Path) -> None:
    config = FDUCorpus(source=str(original))
    (original / "baby.task.train").write_bytes(b"1\tx\n7\ty\n")
    with pytest.raises(UserError, match=r"baby\.task\.train, line 2: '7' is not a label"):
        config.read(None, 0)
    (original / "baby.task.train").write_bytes(b"1\tx\n1\ty\x9d\n")
    with pytest.raises(UserError, match=r"baby\.task\.train, line 2, byte 4: 0x9d is neither"):
        config.read(None, 0)
    (original / "baby.task.test").unlink()
    with pytest.raises(UserError, match=r"baby\.task\.test is missing"):
        config.read(None, 0)
    with pytest.raises(UserError, match=r"no folder .*elsewhere"):
        FDUCorpus(source=str(original / "elsewhere")).read(None, 0)
    (original / "sub").mkdir()
    with pytest.raises(UserError, match=r"no file named <domain>\.task\.train"):
        FDUCorpus(source=str(original / "sub")).read(None, 0)


def test_bytes_are_utf8_or_else_windows_1252() -> None:
    assert repair("plain", "here") == "plain"
    assert repair("naïve – ☃".encode().decode("latin-1"), "here") == "naïve – ☃"
    assert repair("it’s – é".encode("cp1252").decode("latin-1"), "here") == "it’s – é"
    with pytest.raises(UserError, match=r"here, byte 2: 0x81 is neither UTF-8 nor Windows-1252: repair or drop"):
        repair("a\x81", "here")


def test_the_real_fdu_has_the_figures_known_of_it() -> None:
    corpus = prepare(FDUCorpus(), Embedding(), 0, real_data("fdu_mtl/fdu_mtl.parquet"))
    assert len(corpus.clients) == 16
    assert [client.name for client in corpus.clients][:3] == ["apparel", "baby", "books"]
    report = corpus.report
    assert (sum(r.train for r in report), sum(r.test for r in report)) == (25_380, 6_400)
    assert (sum(r.empty for r in report), sum(r.duplicates for r in report)) == (1, 1_245)
    leaks = {r.name: r.leaks for r in report}
    assert (leaks["magazines"].own, leaks["video"].own, leaks["imdb"].own) == (169, 99, 0)
    assert sum(found.own for found in leaks.values()) == 540  # 539 of them to the letter
    assert sum(found.others for found in leaks.values()) == 20
    assert sum(found.unlabeled or 0 for found in leaks.values()) == 434
    assert sum(found.unlabeled_only for found in leaks.values()) == 389
    assert sum(r.mean_length * r.train for r in report) == pytest.approx(3_341_836)
    assert len(corpus.vocabulary) == 50_002
    assert max(np.diff(client.train.offsets).max() for client in corpus.clients) == 200


@pytest.mark.parametrize(("drop", "left"), [("own", 6_400 - 540), ("all", 6_400 - 540 - 20 - 389)])
def test_the_real_fdu_without_leaked_texts(drop: Any, left: int) -> None:
    corpus = prepare(FDUCorpus(drop_leaked=drop), Embedding(), 0, real_data("fdu_mtl/fdu_mtl_unlabeled.parquet"))
    assert sum(len(client.test) for client in corpus.clients) == left
    assert sum(len(client.train) for client in corpus.clients) == 25_380
