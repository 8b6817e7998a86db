"""With secure aggregation no client's update is in the memory of the server's process, nor in what it can reach."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedtext.client.local_fleet import LocalFleet
from fedtext.messages import Update
from fedtext.server.start import start
from fedtext.wire.decoder import Decoder
from tests import tiny
from tests.loops import nonempty

ROOT = Path(__file__).parents[2]
CLIENTS = 4
SERVER = """
import sys
from functools import partial
import ray
from actors.fleet import RayFleet
from actors.placement import Plan
from actors.shipment import ship
from fedtext.server.start import start
from tests.runs.test_masked_memory import CORPUS, experiment

# all of the object store is searched, and nothing but this script writes to its output
ray.init(num_cpus=2, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
received = []


class Keeping(RayFleet):
    def train(self, *given, **named):
        for reply in super().train(*given, **named):
            received.append(reply)  # else its memory may be used again before it is searched
            yield reply


for masks in (True, False):  # what is left of the first is no update
    made = experiment(masks)
    fleet = partial(Keeping, made, ship(made, CORPUS), plan=Plan(2, 1, 0, 1))
    federation = start(made, CORPUS, fleet)
    for record in federation.run():
        pass
    print("trained", flush=True)
    sys.stdin.readline()
    print(federation.flat.sum(), flush=True)
    federation.fleet.close()
"""
CORPUS = tiny.corpus(clients=CLIENTS)
NEEDLE = 64  # bytes


def experiment(masks: bool) -> object:
    """One round, in which the update of each client is sent by itself."""
    return tiny.experiment(
        server={"secure_aggregation": {"masks": masks}},
        training=tiny.TRAINING | {"rounds": 1},
        evaluation={"personalize": None},
        model={"embedding": {"dim": 5}, "hidden": 12},
    )


def updates() -> list[bytes]:
    """A piece of each client's update in integers, and of the same in float32."""
    made = experiment(masks=False)
    federation = start(made, CORPUS, partial(LocalFleet, made, CORPUS))
    worker, flat, found = federation.fleet.worker, federation.flat, []
    decoder, plain = Decoder(made, federation.layout, integers=True), Decoder(made, federation.layout)
    for reply in worker.train(flat, 1, range(CLIENTS)):
        found.append(_joined(decoder.update(reply.payload, reply.client, flat, 1)))
    worker.secure = None
    for reply in worker.train(flat, 1, range(CLIENTS)):
        found.append(_joined(plain.update(reply.payload, reply.client, flat, 1)))
    return [_moved(vector) for vector in found]


def _joined(update: Update) -> np.ndarray:
    return np.concatenate([tensor.reshape(-1) for tensor in update.tensors.values()])


def _moved(vector: np.ndarray) -> bytes:
    """The first piece of a vector in which every number has changed."""
    size = NEEDLE // vector.itemsize
    first = next(place for place in range(len(vector) - size) if (vector[place : place + size] != 0).all())
    return vector[first : first + size].tobytes()


def places(process: int, needles: list[bytes]) -> set[int]:
    """Which needles are in the memory of a process, and in its shared memory."""
    found: set[int] = set()
    with open(f"/proc/{process}/mem", "rb", 0) as memory:
        for low, high in nonempty(_regions(process)):
            found |= _within(memory.fileno(), low, high, needles)
    return found


def _regions(process: int) -> list[tuple[int, int]]:
    """The addresses of a process's memory that it can read, without private memory that it has never written to. Of
    shared memory there is all, since others may have written there."""
    described = Path(f"/proc/{process}/smaps").read_text()
    heads = list(re.finditer(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) .*$", described, re.MULTILINE))
    ends = [head.start() for head in heads[1:]] + [len(described)]
    return [
        (int(head[1], 16), int(head[2], 16))
        for head, end in zip(heads, ends, strict=True)
        if head[3].startswith("r") and "[vvar" not in head[0]
        if head[3].endswith("s") or re.search(r"^(Anonymous|Swap): +[1-9]", described[head.end() : end], re.MULTILINE)
    ]


def _within(memory: int, low: int, high: int, needles: list[bytes]) -> set[int]:
    found, step = set(), 1 << 26
    for first in range(low, high, step):
        try:
            content = os.pread(memory, min(step + NEEDLE, high - first), first)
        except OSError:  # no memory behind it
            continue
        found |= {place for place, needle in enumerate(needles) if needle in content}
    return found


@pytest.mark.ray
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="the memory of processes is not a file here")
def test_no_update_is_in_the_memory_of_the_server() -> None:
    needles = updates()
    assert len(set(needles)) == 2 * CLIENTS
    found, sums = {}, set()
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin
        assert server.stdout
        for masks in nonempty(("masks", "none")):
            assert any(line == "trained\n" for line in server.stdout), "it ended before"
            found[masks] = places(server.pid, needles)
            print(file=server.stdin, flush=True)
            sums.add(server.stdout.readline())
        assert server.wait(timeout=120) == 0
    assert found["none"] >= set(range(CLIENTS)), "without masks the search finds every update, as it was sent"
    assert found["masks"] == set()
    assert len(sums) == 1
