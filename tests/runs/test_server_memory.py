"""The memory of a trial's server: no word of a client's own vocabulary is in it."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.commands import Forked, reached, write
from tests.fedtext.server.test_words_at_the_server import CANARY, CLIENTS, corpus_file

pytestmark = [pytest.mark.ray, pytest.mark.slow]
# Ray's object store is mapped into every process of a node. What a server may read there it asks for by a reference.
STORE = "/dev/shm"


def holds(process: psutil.Process, what: bytes) -> bool:
    """Whether a process has these bytes anywhere in its own memory."""
    with open(f"/proc/{process.pid}/maps") as maps, open(f"/proc/{process.pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            place, rights, *_, path = line.split(maxsplit=5) if line.count(" ") > 5 else [*line.split(), ""]
            if not rights.startswith("rw") or path.startswith(STORE):
                continue
            first, last = (int(end, 16) for end in place.split("-"))
            try:
                memory.seek(first)
                if what in memory.read(last - first):
                    return True
            except OSError:  # a page that cannot be read, or has been returned
                continue
    return False


def named(driver: Forked, title: str) -> list[psutil.Process]:
    """The processes of the driver's Ray whose title begins with ``title``."""
    found = psutil.Process(driver.pid).children(recursive=True)
    return [process for process in found if " ".join(process.cmdline()).startswith(title)]


@pytest.mark.parametrize(("method", "known"), [("fedevocab", False), ("fedavg", True)])
def test_a_server_has_the_words_of_a_common_vocabulary_alone(method: str, known: bool, tmp_path: Path) -> None:
    texts = {"name": "table", "path": str(corpus_file(tmp_path)), "client": "client", "split": "split"}
    training = {"rounds": 400, "local_epochs": 1, "batch_size": 4, "optimizer": {"lr": 0.1}}
    changes = {"corpus": texts, "method": method, "training": training, "space": {}, "baselines": []}
    file = write(tmp_path, **changes, tune={}, evaluation={"personalize": None})
    driver = Forked(tmp_path, "run", str(file), "--name", "held")
    try:
        reached(tmp_path / "runs" / "held" / f"00-{method}" / "checkpoint", 3, driver)
        servers, clients = named(driver, "ray::ImplicitFunc"), named(driver, "ray::ClientActor")
        words = [f"{CANARY}{client}".encode() for client in "abc"[:CLIENTS]]
        assert {any(holds(process, word) for process in clients) for word in words} == {True}, "or nothing is searched"
        assert [{holds(server, word) for word in words} for server in servers] == [{known}]
    finally:
        os.kill(driver.pid, signal.SIGINT)
        driver.wait()
