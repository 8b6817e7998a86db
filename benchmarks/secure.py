"""The cost of secure aggregation: CPU seconds of whole rounds with exact sums, with integers, and behind masks.

Clients train FedAvg on a BiGRU of 64 units with a table of 5,000 x 100, on texts of about 120 words, and send all rows;
all clients and the server live in this process. A run of each kind computes a round in turn, and ratios are of rounds
that follow each other. The first round of each is left out. ``python -m benchmarks.secure --clients 100``
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import synthetic
from benchmarks.measure import paired, spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.secure", *sys.argv[1:]], os.environ | ENVIRONMENT)

from fedtext.client.local_fleet import LocalFleet
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.runtime.compiled import compile_problem
from fedtext.server.start import start

KINDS: dict[str, Any] = {"exact sum": None, "integers": {"masks": False}, "masks": {}}


def experiment(secure: Any, rounds: int, dropout: float) -> Experiment:
    """Return the experiment of one kind of sum."""
    made = {
        "name": "secure",
        "corpus": {"name": "demo"},  # the texts are made in memory; see synthetic.py
        "model": {"name": "gru", "embedding": {"dim": 100}, "hidden": 64},
        "method": "fedavg",
        "wire": {"rows": "all"},
        "participation": {"dropout": dropout},
        "server": {"secure_aggregation": secure},
        "training": {"rounds": rounds, "local_epochs": 1, "batch_size": 8},
        "evaluation": {"personalize": None, "every": rounds},
    }
    return choose_engine(Experiment.model_validate(made), False, compile_problem())


def rounds(made: Experiment, texts: Corpus) -> Iterator[float]:
    """Yield the CPU seconds of each round but the last, which evaluates."""
    running = start(made, texts, partial(LocalFleet, made, texts)).run()
    for _ in range(made.training.rounds - 1):
        began = time.process_time()
        next(running)
        yield time.process_time() - began


def measured(clients: int, samples: int, count: int, dropout: float) -> list[dict[str, Any]]:
    """Return a row for each kind of sum: seconds of a round, and as many times those of an exact sum."""
    texts = synthetic.corpus(clients, samples, 5_000)
    running = {kind: rounds(experiment(secure, count + 2, dropout), texts) for kind, secure in KINDS.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(count + 1):
        for kind, each in running.items():
            taken = next(each)
            if turn:
                seconds[kind].append(taken)
    exact = seconds["exact sum"]
    return [
        {"sum": kind, "texts": samples, "CPU s": spread(found), "times exact": paired(found, exact)}
        for kind, found in seconds.items()
    ]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secure", description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100, help="clients of a round (100)")
    parser.add_argument("--texts", type=int, nargs="+", default=[16, 100], help="train texts of a client (16 100)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds that are measured (4)")
    parser.add_argument("--dropout", type=float, default=0.05, help="participation.dropout (0.05)")
    parser.add_argument("--out", type=Path, help="write the rows to this file, as JSON")
    asked = parser.parse_args()
    each = [measured(asked.clients, samples, asked.rounds, asked.dropout) for samples in asked.texts]
    rows = [row for found in each for row in found]
    print(table(rows))
    write(asked.out, rows)


if __name__ == "__main__":
    main()
