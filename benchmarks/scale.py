"""The cost of a round as a law: seconds by registered clients, by the cohort, and by what clients send.

  registered  10 to 100,000 clients, of which at most 100 train in a round: seconds to the first round and of the others
  cohort      25 to 400 of 1,000 clients train in a round
  server      updates that a server decodes and adds up on one core: clients and bytes a second
  nodes       the same round on one and on two nodes; needs a cluster of two: python -m cluster --cpus 1 -- python -m
              benchmarks.scale nodes

The law, seconds of a round = fixed + cohort x client / actors + registered x each, has its constants from these two
parts, by least squares. ``paper`` extrapolates it: nothing of that size was run.

Clients have four texts of at most ten words and train one batch of them with a GRU of 32 units on 200 x 32 embeddings
(``nodes``: 32 texts of up to 200 words on 5,000 x 64), on two actors. Wall times want two idle cores.
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Tree, spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    words = [sys.executable, "-m", "benchmarks.scale", *sys.argv[1:]]
    os.execve(sys.executable, words, os.environ | ENVIRONMENT)

import numpy as np

from actors.cluster import connect, nodes
from actors.fleet import RayFleet
from actors.placement import Plan
from actors.shipment import ship
from benchmarks import synthetic
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update
from fedtext.parameters import initial
from fedtext.runtime.compiled import compile_problem
from fedtext.server.aggregation import Summation
from fedtext.server.start import start
from fedtext.wire import encoding
from fedtext.wire.decoder import Decoder

SMALL = {"name": "gru", "embedding": {"dim": 32}, "hidden": 32}
MIDDLE = {"name": "bigru", "embedding": {"dim": 64}, "hidden": 64}
LARGE = {"name": "bigru", "embedding": {"dim": 200}, "hidden": 64}
Rows = list[dict[str, Any]]


def experiment(model: dict[str, Any], fraction: float = 1.0, rounds: int = 8) -> Experiment:
    """Return an experiment of FedAvg whose corpus is made in memory; ``auto`` is chosen as a run would."""
    made = {
        "name": "scale",
        "corpus": {"name": "demo"},
        "model": model,
        "method": "fedavg",
        "participation": {"fraction": fraction},
        "training": {"rounds": rounds, "local_epochs": 1, "batch_size": 8},
        "evaluation": {"every": 1_000_000, "personalize": None},
    }
    return choose_engine(Experiment.model_validate(made), False, compile_problem())


def rounds(made: Experiment, corpus: Corpus, actors: int = 2) -> dict[str, Any]:
    """Run all rounds; the first two, in which memory is new, are not among the medians."""
    began, tree = time.perf_counter(), Tree()
    federation = start(made, corpus, partial(RayFleet, made, ship(made, corpus), plan=Plan(actors, 1, 0, 1)))
    try:
        walls, cpus, before, used = [], [], began, tree.cpu()
        for _ in federation.run():
            now, total = time.perf_counter(), tree.cpu()
            walls.append(now - before)
            cpus.append(total - used)
            before, used = now, total
        return {
            "first round after s": walls[0],
            "wall s": spread(walls[2:]),
            "CPU s": spread(cpus[2:]),
            "memory, MB": tree.pss() / 1e6,
        }
    finally:
        federation.fleet.close()


def registered(quick: bool) -> Rows:
    found = []
    for clients in (10, 100, 1_000, *(() if quick else (10_000, 100_000))):
        cohort = min(clients, 100)
        corpus = synthetic.corpus(clients, 4, 200, 10)
        row = rounds(experiment(SMALL, cohort / clients), corpus)
        found.append({"registered": clients, "cohort": cohort} | row)
    return found


def cohorts(quick: bool) -> Rows:
    corpus = synthetic.corpus(1_000, 4, 200, 10)
    sizes = (25, 100) if quick else (25, 50, 100, 200, 400)
    return [{"registered": 1_000, "cohort": size} | rounds(experiment(SMALL, size / 1_000), corpus) for size in sizes]


def law(rows: Rows, actors: int = 2) -> tuple[Rows, Rows]:
    """Fit the law, and extrapolate it.

    Args:
        rows: Measured rows with ``registered``, ``cohort`` and ``wall s``.
        actors: Actors of these measurements.

    Returns:
        The constants, with the largest relative error of the fit; and predicted rounds.
    """
    design = np.array([[1.0, row["cohort"] / actors, row["registered"]] for row in rows])
    walls = np.array([row["wall s"]["median"] for row in rows])
    constants, *_ = np.linalg.lstsq(design / walls[:, None], np.ones(len(walls)), rcond=None)  # relative errors count
    error = float(np.abs(design @ constants / walls - 1).max())
    fixed, client, each = (float(constant) for constant in constants)
    fitted = [
        {
            "fixed, ms": 1e3 * fixed,
            "client, ms": 1e3 * client,
            "registered, us": 1e6 * each,
            "largest error, %": 100 * error,
        }
    ]
    paper = [
        {
            "registered": clients,
            "cohort": cohort,
            "actors": many,
            "s / round": fixed + cohort * client / many + clients * each,
        }
        for clients, cohort, many in ((1_000_000, 100, 2), (1_000_000, 10_000, 64), (1_000_000, 10_000, 256))
    ]
    return fitted, paper


def server(quick: bool) -> Rows:
    """Decode and add up the same update again and again, as the server does with those of a round."""
    found = []
    cases = (("small", SMALL, 200), ("middle", MIDDLE, 5_000), ("large", LARGE, 50_000))
    for name, model, vocabulary in cases[: 2 if quick else 3]:
        made, corpus = experiment(model), synthetic.corpus(4, 4, vocabulary, 10)
        shared, _ = initial(made, corpus)
        layout = Layout({key: tensor.shape for key, tensor in shared.items()})
        decoder, flat = Decoder(made, layout), layout.pack(shared)
        rows_R = np.arange(len(shared[TABLE]), dtype=np.int32)
        payload = np.frombuffer(encoding.encode(Update(0, 4, dict(shared), rows_R)), np.uint8)
        summation = Summation(made, decoder.sent, [4] * 4)
        times = []
        for _ in range(7):
            total, count, began = summation.empty(), max(8, 50_000_000 // payload.nbytes), time.process_time()
            for _ in range(count):
                update = decoder.update(payload, 0, flat, 1)
                summation.check(update)
                total.add(update)
            times.append((time.process_time() - began) / count)
        one = spread(times)["median"]
        found.append(
            {
                "model": name,
                "MB an update": payload.nbytes / 1e6,
                "ms an update": 1e3 * one,
                "updates / s": 1 / one,
                "MB / s": payload.nbytes / 1e6 / one,
            }
        )
    return found


def on_nodes(quick: bool) -> Rows:
    """Run the same rounds on one CPU of one node, and on one CPU of each of two nodes."""
    assert len(nodes()) >= 2, "start it with python -m cluster --cpus 1 -- python -m benchmarks.scale nodes"
    corpus = synthetic.corpus(16 if quick else 64, 32, 5_000)
    found = [rounds(experiment(MIDDLE, rounds=8), corpus, many) for many in (1, 2)]
    seen = "first round after s", "wall s"  # CPU time and memory are those of one node's processes
    return [{"nodes": many} | {name: row[name] for name in seen} for many, row in enumerate(found, 1)]


def main(words: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"registered": registered, "cohort": cohorts, "server": server, "nodes": on_nodes}
    parser.add_argument("parts", nargs="*", default=[], choices=[*parts, []], metavar="PART")
    parser.add_argument("--quick", action="store_true", help="smaller workloads")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args(words)
    chosen = arguments.parts or ["registered", "cohort", "server"]
    if set(chosen) - {"server"}:
        connect(os.environ.get("RAY_ADDRESS"), num_cpus=None if os.environ.get("RAY_ADDRESS") else 2)
    found: dict[str, Any] = {}
    for name in chosen:
        found[name] = parts[name](arguments.quick)
        print(f"\n{name}\n\n{table(found[name])}", flush=True)
    if measured := [*found.get("registered", []), *found.get("cohort", [])]:
        found["law"], found["paper"] = law(measured)
        for name in ("law", "paper"):
            print(f"\n{name}\n\n{table(found[name])}", flush=True)
    write(arguments.json, found)
    return found


if __name__ == "__main__":
    main()
