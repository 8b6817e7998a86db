"""The cost of registered clients that do not train: start, memory, rounds and checkpoints of the same cohort.

Populations are generated forums (corpus ``forum``), whose user i has the same texts in each of them. Each population
starts twice in a process of its own, with an empty cache and with the texts that it has encoded then. Afterwards all of
them compute a round of the same users in turn, in one process, and ratios are of rounds that follow each other.
``python -m benchmarks.population --clients 1000 100000 1000000``
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import paired, spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.population", *sys.argv[1:]], os.environ | ENVIRONMENT)

from fedtext.client.local_fleet import LocalFleet
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.prepare import prepare
from fedtext.parameters import initial
from fedtext.runtime.compiled import compile_problem
from fedtext.server.federation import Federation
from fedtext.server.sampling import Returned
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.fingerprint import fingerprint
from fedtext.state.kept import kept


class SameUsers(Federation[LocalFleet]):
    """Draws a cohort from the whole population, and trains one that every population has."""

    users: range

    def _sample(self, round_: int, attempt: int = 1, spent_s: float = 0.0) -> Returned:
        super()._sample(round_, attempt, spent_s)
        return Returned(list(self.users), [], None)


def experiment(clients: int, rounds: int, asked: argparse.Namespace) -> Experiment:
    """Return the experiment of a population, whose last round evaluates."""
    made = {
        "name": "population",
        "corpus": {"name": "forum", "clients": clients, "vocabulary": 5_000, "storage": "disk"},
        "model": {"name": "gru_lm", "embedding": {"dim": 64}, "hidden": 64},
        "method": asked.method,
        "participation": {"fraction": min(1.0, asked.cohort / clients)},
        "training": {"rounds": rounds, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
        "evaluation": {"personalize": None, "clients": 100, "every": rounds},
    }
    return choose_engine(Experiment.model_validate(made), False, compile_problem())


def started(clients: int, rounds: int, asked: argparse.Namespace, folder: Path) -> Federation[LocalFleet]:
    """Return a population before its first round, whose cohort is the first users of all populations."""
    made = experiment(clients, rounds, asked)
    corpus = prepare(made.corpus, made.model.embedding, made.seed, None)
    shared, private = initial(made, corpus)
    checkpoints = Checkpoints(folder, fingerprint(made, corpus.content, clients))
    federation = SameUsers(made, shared, LocalFleet(made, corpus, private), checkpoints)
    federation.users = range(asked.cohort)
    return federation


def alone(clients: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of the start, the largest memory, and the bytes of checkpoints of a population."""
    with tempfile.TemporaryDirectory() as folder:
        began, began_cpu = time.perf_counter(), time.process_time()
        federation = started(clients, 3, asked, Path(folder))
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
        for _ in federation.run():
            pass
        size = sum(path.stat().st_size for path in kept(Path(folder))[-1].iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"start": seconds, "cpu": cpu_seconds, "peak": peak, "checkpoint": size / 1e6}


def in_turn(asked: argparse.Namespace) -> dict[int, list[float]]:
    """Return the CPU seconds of rounds of each population, without its first one."""
    seconds: dict[int, list[float]] = {clients: [] for clients in asked.clients}
    with tempfile.TemporaryDirectory() as folder:
        running = {n: started(n, asked.rounds + 2, asked, Path(folder) / str(n)).run() for n in asked.clients}
        for turn in range(asked.rounds + 1):
            for clients, each in running.items():
                began = time.process_time()
                next(each)
                if turn:
                    seconds[clients].append(time.process_time() - began)
    return seconds


def apart(asked: argparse.Namespace, *more: str) -> Any:
    """Return what another process of this benchmark measures."""
    words = ["--method", asked.method, "--cohort", str(asked.cohort), "--rounds", str(asked.rounds), *more]
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.population", *words], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(found.stdout.splitlines()[-1])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.population", description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 100_000, 1_000_000], help="populations")
    parser.add_argument("--cohort", type=int, default=50, help="clients of a round (50)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds (10)")
    parser.add_argument("--method", default="fedavg", help="method (fedavg)")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(alone(asked.clients[0], asked)))
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FEDTEXT_CACHE"] = cache
        for clients in asked.clients:
            first, again = (apart(asked, "--alone", "--clients", str(clients)) for _ in range(2))
            rows.append(
                {
                    "clients": f"{clients:,}",
                    "first start s": first["start"],
                    "first start CPU s": first["cpu"],
                    "start s": again["start"],
                    "start CPU s": again["cpu"],
                    "first peak MB": first["peak"],
                    "peak MB": again["peak"],
                    "checkpoint MB": again["checkpoint"],
                }
            )
        seconds = in_turn(asked)
    for row, found in zip(rows, seconds.values(), strict=True):
        row |= {"CPU s/round": spread(found), "times first": paired(found, seconds[asked.clients[0]])}
    print(table(rows))
    write(asked.json, rows)


if __name__ == "__main__":
    main()
