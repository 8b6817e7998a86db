"""Corpora on disk where they have travelled to: their files are opened at the first use."""

import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fedtext.corpora.forum import ForumCorpus
from fedtext.corpora.stored import StoredClients, stored
from fedtext.errors import UserError


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredClients:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path))
    return stored(ForumCorpus(clients=30, median=8, lexicon_size=200, vocabulary=90), 0, None)


@pytest.mark.parametrize(("part", "file"), [("clients", "tokens.npy"), ("names", "names.utf8")])
def test_what_is_wrong_is_told_by_every_use(part: str, file: str, clients: StoredClients) -> None:
    sent: Any = pickle.loads(pickle.dumps(clients if part == "clients" else clients.names))
    os.truncate(clients.folder / file, 9)
    for _ in range(2):
        with pytest.raises(UserError, match=r"^corpus.storage: \S+ is damaged .*: remove it, and start again$"):
            len(sent) if part == "clients" else sent[0]


def test_a_thread_waits_until_another_one_has_opened_all_files(
    clients: StoredClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, opening, read = pickle.loads(pickle.dumps(clients)), threading.Event(), StoredClients._read

    def slow(each: StoredClients, name: str) -> Any:
        opening.set()
        time.sleep(0.01)
        return read(each, name)

    monkeypatch.setattr(StoredClients, "_read", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(len, sent)
        assert opening.wait(10)
        assert sent[0].name == clients[0].name
        assert first.result() == 30
