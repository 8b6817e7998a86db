"""A long run of many clients: seconds a round and memory, and whether they grow with the number of rounds.

Clients have four texts of at most ten words, train one batch of them with KTEPS on a GRU of 4 units (whose encoder is
private), and are evaluated in every round, so that records have the metrics of each. A checkpoint follows every round.
All clients live in this process; with --ray the same number of clients of the demo trains through ``platform.run``.

Seconds are CPU seconds of this process (with --ray: wall seconds between two records), since other work on the machine
does not move them. ``python -m benchmarks.soak --clients 2000 --cohort 100 --rounds 40``
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import synthetic
from benchmarks.measure import Tree, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.soak", *sys.argv[1:]], os.environ | ENVIRONMENT)

from fedtext.client.local_fleet import LocalFleet
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.runtime.compiled import compile_problem
from fedtext.server.start import start
from fedtext.state.checkpoint import history

ROOT = Path(__file__).resolve().parent.parent
TINY = {"name": "gru", "embedding": {"dim": 4}, "hidden": 4, "head": {"hidden": 4}}
POINTS = 10
WARM = 2  # rounds at the beginning, in which memory is new
Rows = list[dict[str, Any]]


def experiment(fraction: float, rounds: int) -> Experiment:
    made = {
        "name": "soak",
        "corpus": {"name": "demo"},  # the texts are made in memory; see synthetic.py
        "model": TINY,
        "method": "kteps",
        "participation": {"fraction": fraction},
        "training": {"rounds": rounds, "local_epochs": 1, "batch_size": 8},
        "evaluation": {"personalize": None},
    }
    return choose_engine(Experiment.model_validate(made), False, compile_problem())


def corpus(clients: int) -> Corpus:
    made = synthetic.corpus(clients, 4, 50, 10)
    return replace(made, clients=[replace(client, test=client.train) for client in made.clients])


class Timed:
    """Counts the seconds of the calls of a method."""

    def __init__(self, owner: Any, method: str) -> None:
        self.cpu = self.wall = 0.0
        self.called = getattr(owner, method)
        setattr(owner, method, self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            return self.called(*given, **named)
        finally:
            self.cpu += time.process_time() - cpu
            self.wall += time.perf_counter() - wall


def soak(clients: int, cohort: int, rounds: int, folder: Path) -> Rows:
    """Run all rounds in this process. Returns a row for each: seconds, those of its checkpoint, and memory."""
    made, texts, process = experiment(cohort / clients, rounds), corpus(clients), psutil.Process()
    federation = start(made, texts, partial(LocalFleet, made, texts), folder)
    assert federation.checkpoints is not None
    saving = [Timed(federation.checkpoints, "save"), Timed(federation.fleet, "private_states")]
    rows, before = [], (time.process_time(), time.perf_counter(), 0.0, 0.0)
    for record in federation.run():
        now = (time.process_time(), time.perf_counter(), sum(t.cpu for t in saving), sum(t.wall for t in saving))
        cpu, wall, cpu_saved, wall_saved = (after - one for after, one in zip(now, before, strict=True))
        memory = process.memory_info().rss / 1e6
        rows.append(
            {
                "round": record.round,
                "CPU s": cpu,
                "checkpoint CPU s": cpu_saved,
                "wall s": wall,
                "checkpoint wall s": wall_saved,
                "memory MB": memory,
            }
        )
        before = (time.process_time(), time.perf_counter(), now[2], now[3])
    assert len(history(folder)) == rounds
    return rows


def through_commands(clients: int, cohort: int, rounds: int, folder: Path) -> Rows:
    """Run all rounds by ``platform.run``. Returns a row for each: wall seconds, and memory of all processes."""
    words = ["-m", "platform.run", "demo.yaml", "--name", "soak", f"corpus.clients={clients}", "corpus.train=8"]
    words += ["corpus.test=4", f"training.rounds={rounds}", f"participation.fraction={cohort / clients}"]
    words += ["model.embedding.dim=4", "model.hidden=4", "evaluation.personalize=null"]
    with open(folder / "output", "w") as output:
        command = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env=os.environ | {"FEDTEXT_HOME": str(folder)},
            stdout=output,
            stderr=output,
        )
    tree, memory = Tree(psutil.Process(command.pid)), dict[int, float]()
    checkpoints = "runs/soak/*/checkpoint/round-*"
    while command.poll() is None:
        time.sleep(0.2)
        done = max((int(path.name[6:]) for path in folder.glob(checkpoints)), default=0)
        if done and done not in memory and done % max(1, rounds // 50) == 0:
            memory[done] = tree.pss() / 1e6
    assert command.returncode == 0, (folder / "output").read_text()
    records = history(next(folder.glob(checkpoints)).parent)
    walls = {after.round: after.time - one.time for one, after in pairwise(records)}
    return [{"round": n, "wall s": walls[n]} | ({"memory MB": memory[n]} if n in memory else {}) for n in sorted(walls)]


def points(rows: Rows) -> Rows:
    """Return the means of ten equal parts of a run."""
    parts = np.array_split(np.arange(len(rows)), min(POINTS, len(rows)))
    found = []
    for part in parts:
        names = [name for name in rows[-1] if name != "round"]
        each = {name: [float(rows[n][name]) for n in part if name in rows[n]] for name in names}
        means = {name: float(np.mean(values)) for name, values in each.items() if values}
        found.append({"rounds": f"{rows[part[0]]['round']}-{rows[part[-1]]['round']}"} | means)
    return found


def slope(rounds: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return the slope of a straight line by least squares, and its standard error."""
    x, y = np.asarray(rounds, float), np.asarray(values, float)
    x = x - x.mean()
    steepness = float(x @ y / (x @ x))
    rest = y - y.mean() - steepness * x
    return steepness, math.sqrt(float(rest @ rest) / max(1, len(y) - 2) / float(x @ x))


def trends(rows: Rows) -> Rows:
    """Return for each column by how much it grows from the first to the last round, and whether it is flat: less than
    twice the error of that, or than a tenth of the mean."""
    found = []
    for name in [name for name in rows[-1] if name != "round"]:
        there = [row for row in rows[WARM:] if name in row]
        if len(there) < 3:
            continue
        steepness, error = slope([row["round"] for row in there], [row[name] for row in there])
        mean, span = float(np.mean([row[name] for row in there])), there[-1]["round"] - there[0]["round"]
        flat = abs(steepness) < 2 * error or abs(steepness * span) < mean / 10
        grows = {"mean": mean, "grows by": steepness * span, "error": error * span, "flat": "yes" if flat else "no"}
        found.append({"of": name} | grows)
    return found


def main(words: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--cohort", type=int, help="clients that train in a round; by default all")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--ray", action="store_true", help="through the commands, with Ray and MLflow")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args(words)
    way, cohort = through_commands if arguments.ray else soak, arguments.cohort or arguments.clients
    with tempfile.TemporaryDirectory() as folder:
        rows = way(arguments.clients, cohort, arguments.rounds, Path(folder))
    found = {"points": points(rows), "trends": trends(rows)}
    for name, each in found.items():
        print(f"\n{name}\n\n{table(each)}", flush=True)
    write(arguments.json, found)
    return found


if __name__ == "__main__":
    main()
