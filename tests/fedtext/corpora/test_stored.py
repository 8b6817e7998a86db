"""Corpora on disk: written once, and equal to those in memory bit for bit."""

import os
import pickle
import resource
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtext
from fedtext.client import texts
from fedtext.corpora.forum import ForumCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.statistics import render
from fedtext.corpora.stored import StoredClients
from fedtext.corpora.totals import totals
from fedtext.corpora.types import Corpus
from fedtext.corpora.users import Users
from fedtext.errors import UserError
from fedtext.models.language import WordEmbedding
from fedtext.state.fingerprint import fingerprint, released
from fedtext.state.versions import VERSIONS
from fedtext.text.tokens import decode
from tests import tiny
from tests.loops import nonempty

KEYS: dict[str, Any] = {"name": "forum", "clients": 30, "median": 8, "lexicon_size": 200, "vocabulary": 90}
MODEL = {"name": "gru_lm", "embedding": {"dim": 6}, "hidden": 6}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path))
    return tmp_path / "prepared-3"


def prepared(storage: str, **keys: Any) -> Corpus:
    return prepare(ForumCorpus.model_validate(KEYS | keys | {"storage": storage}), WordEmbedding(dim=4), 5, None)


@pytest.mark.parametrize(
    "keys", [{}, {"max_length": 6}, {"max_length": None}, {"validation": 0.0}, {"min_count": 12}, {"vocabulary": 9000}]
)
def test_texts_on_disk_are_those_in_memory(keys: dict[str, Any]) -> None:
    memory, disk = prepared("memory", **keys), prepared("disk", **keys)
    assert isinstance(disk.clients, StoredClients)
    assert (memory.vocabulary, memory.content, memory.classes) == (disk.vocabulary, disk.content, disk.classes)
    for one, two in nonempty(zip(memory.clients, disk.clients, strict=True)):
        assert (one.id, one.name, one.train_rows) == (two.id, two.name, two.train_rows)
        for side in ("train", "validation", "test"):
            of_one, of_two = getattr(one, side), getattr(two, side)
            for name in nonempty(("tokens_T", "offsets", "labels_N", "bytes_N")):
                assert np.array_equal(getattr(of_one, name), getattr(of_two, name))
                assert getattr(of_one, name).dtype == getattr(of_two, name).dtype


def test_a_share_of_validation_texts_is_not_rounded_up_where_it_is_a_whole_number() -> None:
    """28 % of 25 are 7, and in floating point a little more. A share of one text is that text."""
    left_K = np.arange(1, 101)
    texts_K3, words_T = np.stack([0 * left_K, left_K, 0 * left_K], 1), np.zeros(left_K.sum(), np.int32)
    users = Users([f"user{n}" for n in left_K], texts_K3, np.ones(left_K.sum(), np.int64), words_T)
    for percent in range(1, 100):
        kept = users.kept(percent / 100)
        assert kept.texts_K3[:, 1].tolist() == [-(-percent * n // 100) for n in range(1, 101)]
        assert len(kept.tokens_T) == kept.texts_K3.sum()
    assert users.kept(1e-9).texts_K3[:, 1].tolist() == [1] * 100
    assert not users.kept(0.0).texts_K3.any()
    one, two = (prepared("memory", validation=share).content for share in (0.2, 0.6))
    assert one != two, "runs on other splits are refused"


@pytest.mark.parametrize("others", [0, 5, 1000])
def test_test_texts_that_clients_train_on_are_known_on_disk_too(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "OTHERS", others)
    memory, disk = (prepared(storage, max_length=3, median=20) for storage in ("memory", "disk"))
    repeated, again = texts.RepeatedTests(disk, 7), texts.RepeatedTests(disk, 7)
    found = [repeated(client) for client in disk.clients]

    def sentences(split: str) -> list[list[list[str]]]:
        each = ((getattr(client, split), client.rows_R) for client in memory.clients)
        return [decode(one.tokens_T, one.offsets, rows_R, memory.vocabulary) for one, rows_R in each]

    train, test = sentences("train"), sentences("test")
    own = [[text in theirs for text in tests] for theirs, tests in zip(train, test, strict=True)]
    every = {tuple(text) for theirs in train for text in theirs}
    everyone = [[tuple(text) in every for text in tests] for tests in test]
    flags = [found_N.tolist() for found_N in found]
    if others == 5:  # those of some clients
        assert sum(map(sum, own)) < sum(map(sum, flags)) < sum(map(sum, everyone))
        assert flags != [texts.RepeatedTests(disk, 8)(client).tolist() for client in disk.clients]
    else:
        assert flags == (everyone if others else own)
    assert flags == [again(client).tolist() for client in reversed(disk.clients)][::-1], "in any order and process"
    for client, any_N in nonempty(zip(memory.clients, memory.repeated, strict=True)):
        assert texts.RepeatedTests(memory, 7)(client) is any_N
    assert not texts.RepeatedTests(replace(disk, clients=[]), 7)(disk.clients[0]).any(), "nothing is known"


def test_audits_that_know_more_repeated_texts_are_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def digests(storage: str, *audits: str) -> tuple[str, str]:
        corpus = KEYS | {"storage": storage}
        made = tiny.experiment(corpus=corpus, model=MODEL, evaluation={"personalize": None}, audits=list(audits))
        return fingerprint(made, "content", 30), released(made, "content", 30)

    kinds = [("disk", "membership"), ("disk",), ("memory", "membership")]
    before = {kind: digests(*kind) for kind in kinds}
    monkeypatch.setitem(VERSIONS, "unseen", 0)
    after = {kind: digests(*kind) for kind in kinds}
    assert [kind for kind in before if before[kind] != after[kind]] == [("disk", "membership")]
    assert before["disk", "membership"][1] == after["disk", "membership"][1] == before["disk",][1], "of the noise"


METHODS: list[Any] = [
    "fedavg",
    {"name": "fedprox", "mu": 0.1},
    "scaffold",
    "fedatt",
    "feddyn",
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method if isinstance(method, str) else method["name"])
def test_a_run_from_disk_gives_the_same_bits(method: Any, tmp_path: Path) -> None:
    content = {
        "name": "paged",
        "corpus": KEYS,
        "model": MODEL,
        "method": method,
        "uplink": [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.001}}],
        "training": {"rounds": 3, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
        "participation": {"fraction": 0.2},
        "evaluation": {"clients": 7, "personalize": {"steps": 1}},
    }
    results = [
        fedtext.run(content, f"corpus.storage={storage}", out=tmp_path / storage) for storage in ("memory", "disk")
    ]
    one, two = results
    for name, tensor in nonempty(one.state.items()):
        assert np.array_equal(tensor, two.state[name])
    for here, there in nonempty(zip(one.history, two.history, strict=True)):
        timeless = {name for name in here.metrics if "seconds" not in name}
        assert {name: here.metrics[name] for name in timeless} == {name: there.metrics[name] for name in timeless}
        assert len(here.clients) == 7
        assert here.clients == there.clients


def test_texts_are_encoded_once_and_again_if_anything_changes(cache: Path) -> None:
    prepared("disk")
    (folder,) = cache.iterdir()
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    prepared("disk")
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    assert folder.stat().st_mode & 0o777 == 0o700, "texts are private"
    for keys in nonempty(({"median": 9}, {"vocabulary": 80}, {"max_length": 9}, {"clients": 31})):
        there = len(list(cache.iterdir()))
        prepared("disk", **keys)
        assert len(list(cache.iterdir())) == there + 1


def test_a_draft_that_a_killed_process_left_is_removed_after_a_day(cache: Path) -> None:
    prepared("disk")
    (folder,) = cache.iterdir()
    for name, hours in nonempty([("old", 25), ("new", 23), ("written", 25)]):
        draft = folder.with_name(f".{folder.name}-{name}")
        draft.mkdir()
        then = time.time() - 3600 * hours
        for path in (draft / "raw.i32", draft / "lengths.i32", draft):
            path.touch()
            os.utime(path, (then, then))
    (cache / f".{folder.name}-written" / "raw.i32").touch()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    prepared("disk")
    left = {path.name for path in cache.iterdir()}
    assert left == {folder.name, f".{folder.name}-new", f".{folder.name}-written"}


def test_clients_travel_as_the_name_of_their_folder(cache: Path) -> None:
    clients = prepared("disk").clients
    sent = pickle.dumps(clients)
    assert len(sent) < 1000
    assert np.array_equal(pickle.loads(sent)[3].train.tokens_T, clients[3].train.tokens_T)
    names = clients.names  # type: ignore[attr-defined]
    assert list(pickle.loads(pickle.dumps(names))[2:4]) == ["user-03", "user-04"]
    assert [client.id for client in clients[28:]] == [28, 29]
    with pytest.raises(IndexError):
        clients[30]
    (folder,) = cache.iterdir()
    folder.rename(folder.with_name("elsewhere"))
    assert list(names[2:4]) == ["user-03", "user-04"], "what is open can be read to the end of a run"
    assert names[:-1][-1] == "user-29"
    with pytest.raises(UserError, match=r"has no encoded texts on this machine: set .FEDTEXT_CACHE to a"):
        len(pickle.loads(sent))
    with pytest.raises(UserError, match=r"has no encoded texts on this machine: set .FEDTEXT_CACHE to a"):
        pickle.loads(pickle.dumps(names))[0]


DAMAGED = ["about.json", "tokens.npy", "texts.npy", "lengths.npy", "names.utf8", "name-ends.npy"]


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("how", ["missing", "cut", "empty"])
def test_a_folder_that_is_not_complete_is_told_in_a_sentence(damage: str, how: str, cache: Path) -> None:
    prepared("disk")
    (folder,) = cache.iterdir()
    file = folder / damage
    if how == "missing":
        file.unlink()
    else:
        os.truncate(file, 0 if how == "empty" else file.stat().st_size - 9)
    with pytest.raises(UserError, match=rf"corpus.storage: .*{folder.name} is damaged .*: remove it, and start again"):
        prepared("disk")


@pytest.mark.parametrize("file", ["tokens.npy", "names.utf8"])
def test_a_file_that_is_cut_while_it_is_open_is_told_when_it_is_read(file: str, cache: Path) -> None:
    clients = prepared("disk").clients
    (folder,) = cache.iterdir()
    os.truncate(folder / file, (folder / file).stat().st_size - 3)
    assert len(clients[0].train) > 0, "what is left is read"
    with pytest.raises(UserError, match=rf"{folder.name} is damaged \({file} ends early\): remove it, and start again"):
        clients[29]


def test_machines_with_equal_process_ids_can_encode_at_the_same_time(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins and ends while the first one writes: threads of a process have its id."""
    expected, blocks, started = prepared("memory"), ForumCorpus.blocks, threading.Event()

    def twice(config: ForumCorpus, *given: Any) -> Iterator[Users]:
        for users in nonempty(blocks(config, *given)):
            if not started.is_set():
                started.set()
                with ThreadPoolExecutor(1) as other:
                    assert other.submit(prepared, "disk").result().digest == expected.digest
            yield users

    monkeypatch.setattr(ForumCorpus, "blocks", twice)
    assert prepared("disk").digest == expected.digest
    assert started.is_set()
    (folder,) = cache.iterdir()
    assert not folder.name.startswith("."), "no draft is left"


def test_a_full_disk_is_told_in_a_sentence(cache: Path) -> None:
    """A limit on the size of files, which is an error of the same kind."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, hard))
    try:
        with pytest.raises(UserError, match=r"corpus.storage: .* written \(File too large\): raise the limit"):
            prepared("disk")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not list(cache.iterdir()), "no draft is left"


def test_large_corpora_are_on_disk_by_default() -> None:
    small, large = (ForumCorpus(clients=clients).on_disk for clients in (4_999, 5_000))
    assert (small, large) == (False, True)
    assert not ForumCorpus.model_validate({"clients": 5_000, "share": 0.5}).on_disk
    for key in nonempty(({"share": 0.5}, {"vocabulary": 80, "secrets": {"digits": 4}})):
        with pytest.raises(ValueError, match=r"storage: disk encodes users one after the other, and .* needs all"):
            ForumCorpus.model_validate(KEYS | key | {"storage": "disk"})
    with pytest.raises(ValueError, match=r"storage: disk encodes users one after the other, and text needs all"):
        ForumCorpus.model_validate({"clients": 5_000, "text": "bpe", "storage": "disk"})


def test_statistics_are_quantiles_over_clients() -> None:
    memory, disk = prepared("memory"), prepared("disk")
    assert totals(memory) == totals(disk)
    told = render(disk)
    train = sorted(len(client.train) for client in memory.clients)
    row = next(line.split() for line in told.splitlines() if line.split()[:1] == ["train"])
    assert [row[1], row[6], row[-1]] == [str(train[0]), str(train[-1]), f"{totals(memory)['train']:,}"]
    assert f"forum: 30 clients, {memory.classes} candidates for the next word, digest {memory.digest}, on disk" in told
    assert "train tokens" in told
