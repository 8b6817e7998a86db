"""Runs that are killed at random moments and resumed until they end, compared bit for bit with one that is not.

A run of the demo with KTEPS, secret noise and a sample of clients trains in a process of its own, which is killed
(SIGKILL) again and again, a random time after its start: while it loads, trains, or writes, renames or removes a
checkpoint. Compared are the shared parameters, the clients' private states and the metrics of all rounds, times left
out. The undisturbed run goes on from the same key of noise.

``python -m benchmarks.kills --runs 5 --kills 10``
"""

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.kills", *sys.argv[1:]], os.environ | ENVIRONMENT)

import fedtext
from fedtext.state.checkpoint import Checkpoints, recorded
from fedtext.state.noise_key import FILE

CONTENT: dict[str, Any] = {
    "name": "kills",
    "corpus": {"name": "demo", "clients": 12, "train": 20, "test": 10},
    "model": {"embedding": {"dim": 8}, "hidden": 8, "head": {"hidden": 8}},
    "method": {"name": "kteps"},
    "uplink": [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.01}}],
    "privacy": {"noise": "secret"},
    "participation": {"fraction": 0.5},
    "training": {"local_epochs": 1, "batch_size": 8},
    "server": {"optimizer": {"name": "adam", "lr": 0.01}},
    "evaluation": {"personalize": None},
    "save": {"model": "none"},
}
TIMES = ("seconds", "_ms")  # parts of the names of metrics that are times


def train(folder: Path, rounds: int) -> None:
    fedtext.run(CONTENT, f"training.rounds={rounds}", out=folder, resume=True)


def ended(folder: Path) -> list[Any]:
    """Return what must be equal: parameters, private states, the server's state, and metrics."""
    state = Checkpoints(folder, recorded(folder) or "").load()
    assert state is not None
    moments = {name: tensor.tobytes() for name, tensor in state.moments.items()}
    metrics = [
        {name: value for name, value in record.metrics.items() if not any(part in name for part in TIMES)}
        for record in state.history
    ]
    return [state.flat.tobytes(), state.clients, moments, metrics, [record.clients for record in state.history]]


def killed(folder: Path, rounds: int, kills: int, longest: float, draw: random.Random) -> list[int]:
    """Run to the end, with at most ``kills`` kills before it. Returns the last round in the folder after each."""
    context, left = multiprocessing.get_context("fork"), list[int]()
    while True:
        process = context.Process(target=train, args=(folder, rounds))
        process.start()
        if len(left) < kills:
            process.join(draw.uniform(0, longest))
        else:
            process.join()
        if process.exitcode is not None:
            assert process.exitcode == 0, f"a resumed run failed (status {process.exitcode})"
            return left
        process.kill()
        process.join()
        left.append(max((int(path.name[6:]) for path in folder.glob("round-*")), default=0))


def kills(runs: int, count: int, rounds: int, place: Path, seed: int = 0) -> list[dict[str, Any]]:
    """Return a row for each run: its kills, and whether it ended as the undisturbed one."""
    draw, rows = random.Random(seed), []
    whole = place / "whole"
    train(whole, 1)  # what is loaded once is not part of the measured time
    key = (whole / FILE).read_bytes()
    began = time.perf_counter()
    train(whole, rounds)
    trained = time.perf_counter()
    train(whole, rounds)  # nothing is left to do: the time to load a run
    loading = time.perf_counter() - trained
    longest = 2 * loading + 1.5 * max(0.0, trained - began - loading) / max(1, count)
    expected = ended(whole)
    for number in range(1, runs + 1):
        folder = place / f"run-{number}"
        folder.mkdir()
        (folder / FILE).write_bytes(key)
        (folder / FILE).chmod(0o600)
        left = killed(folder, rounds, count, longest, draw)
        same = ended(folder) == expected
        rows.append(
            {
                "run": number,
                "kills": len(left),
                "after rounds": " ".join(map(str, left)),
                "equal": "yes" if same else "no",
            }
        )
        shutil.rmtree(folder)
    return rows


def main(words: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10, help="most kills of a run, which may end before")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        rows = kills(arguments.runs, arguments.kills, arguments.rounds, Path(place), arguments.seed)
    print(table(rows), flush=True)
    print(f"\n{sum(row['kills'] for row in rows)} kills, {sum(row['equal'] == 'yes' for row in rows)} runs equal")
    write(arguments.json, rows)
    return rows


if __name__ == "__main__":
    sys.exit(any(row["equal"] == "no" for row in main()))
