"""The memory of a trial's server: no word of a client's own vocabulary is in it, and no update without its masks."""

import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedtext.config.secure import levels
from tests.commands import Forked, reached, write
from tests.fedtext.server.test_words_at_the_server import CANARY, CLIENTS, corpus_file

pytestmark = [pytest.mark.ray, pytest.mark.slow]
# Ray's object store is mapped into every process of a node. What a server may read there it asks for by a reference.
STORE = "/dev/shm"
CONSTANT = '''
from typing import Literal
import numpy as np
from fedtext.mechanisms.base import Mechanism

class Constant(Mechanism):
    """Puts the same number in the place of every coordinate."""

    name: Literal["constant"] = "constant"
    number: float

    def apply(self, delta, received, rng):
        return {name: np.full_like(tensor, self.number) for name, tensor in delta.items()}
'''
LEVEL, RANGE, BITS = 12_345, 1.0, 16
NUMBER = LEVEL * RANGE / levels(BITS)


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


@pytest.mark.parametrize("masks", [True, False])
def test_a_server_holds_updates_without_masks_only_if_there_are_none(masks: bool, tmp_path: Path) -> None:
    """Every coordinate of every update is the same integer, so that a few of them in a row are found wherever they are.

    One of three clients is alone in its actor: its update comes to the server by itself.
    """
    (tmp_path / "constant.py").write_text(CONSTANT)
    secure = {"range": RANGE, "bits": BITS, "masks": masks}
    changes = {
        "plugins": [str(tmp_path / "constant.py")],
        "corpus": {"name": "demo", "clients": 3, "train": 8, "test": 4},
        "method": "fedavg",
        "uplink": [{"constant": {"number": NUMBER}}],
        "wire": {"rows": "all"},
        "server": {"weights": "uniform", "secure_aggregation": secure},
        "training": {"rounds": 10_000, "local_epochs": 1, "batch_size": 4, "optimizer": {"lr": 0.1}},
        "evaluation": {"personalize": None, "every": 10_000},
    }
    file = write(tmp_path, **changes, space={}, baselines=[], tune={})
    driver = Forked(tmp_path, "run", str(file), "--name", "masked", "--num-cpus", "2")
    try:
        reached(tmp_path / "runs" / "masked" / "00-fedavg" / "checkpoint", 3, driver)
        (server,), clients = named(driver, "ray::ImplicitFunc"), named(driver, "ray::ClientActor")
        update, total = (np.full(16, number, np.uint32).tobytes() for number in (LEVEL, 3 * LEVEL))
        numbers = np.full(16, NUMBER, np.float32).tobytes()
        assert any(holds(process, numbers) for _ in range(6) for process in clients), "or nothing is searched"
        assert any(holds(server, total) for _ in range(6)), "the sum of all three is opened"
        assert any(holds(server, update) for _ in range(6)) == (not masks)
    finally:
        os.kill(driver.pid, signal.SIGINT)
        driver.wait()
