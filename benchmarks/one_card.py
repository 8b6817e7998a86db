"""Rounds on one GPU: client actors that share it, beside one process without Ray.

KTEPS on clients of equal size (embedding 50,000 x 200, BiGRU 64, batches of 8), all of whom train in every round. Each
row is one engine and stack, with the clients in one process (``LocalFleet``), or dealt out to actors that have a share
of the card each. Times are wall time of a round after the first, with wire, aggregation and transfers, without an
evaluation. The card's memory is what all processes have of it at the end. Rows with actors come first, before this
process has a part of the card.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measure import spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.one_card", *sys.argv[1:]], os.environ | ENVIRONMENT)

import time

import torch

from benchmarks import synthetic
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError, command_line
from fedtext.runtime.devices import device_of
from fedtext.server.start import start


def experiment(engine: str, stack: int, rounds: int, dim: int, hidden: int) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "one-card",
            "corpus": {"name": "demo"},  # the texts are made in memory; see synthetic.py
            "model": {"name": "bigru", "embedding": {"dim": dim}, "hidden": hidden},
            "method": "kteps",
            "training": {"rounds": rounds, "local_epochs": 1, "batch_size": 8, "stack": stack, "engine": engine},
            "evaluation": {"every": rounds, "personalize": None},
        }
    )


def fleet_of(made: Experiment, corpus: Corpus, actors: int, device: torch.device) -> Callable[..., Any]:
    """Return what makes the clients' fleet: actors on Ray, or with 0 of them this process."""
    if actors == 0:
        return partial(LocalFleet, made, corpus, device=str(device))
    from actors.fleet import RayFleet
    from actors.placement import Plan
    from actors.shipment import ship

    return partial(RayFleet, made, ship(made, corpus), plan=Plan(actors, 1, (device.type == "cuda") / actors, 1))


def measured(made: Experiment, corpus: Corpus, actors: int, device: torch.device) -> dict[str, Any]:
    """Return a row: seconds to the first round, of the others, and the card's memory."""
    began = time.perf_counter()
    federation = start(made, corpus, fleet_of(made, corpus, actors, device))
    try:
        walls, before = [], began
        for _ in federation.run():
            walls.append(time.perf_counter() - before)
            before = time.perf_counter()
        row: dict[str, Any] = {"actors": actors or "no Ray", "engine": made.engine, "stack": made.training.stack}
        row |= {"first round s": walls[0], "wall s / round": spread(walls[1:-1])}  # the last one has the evaluation
        texts = sum(len(client.train) for client in corpus.clients)
        row["texts / s"] = texts / row["wall s / round"]["median"]
        if device.type == "cuda":
            free, there = torch.cuda.mem_get_info(device)
            row["card's memory, MB"] = (there - free) / 1e6
        return row
    finally:
        federation.fleet.close()
        del federation
        torch.cuda.empty_cache()


@command_line()
def main(words: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, nargs="+", default=[0, 1, 2, 4, 8], help="0: one process without Ray")
    parser.add_argument("--stacks", type=int, nargs="+", default=[1, 16], metavar="CLIENTS", help="side by side")
    parser.add_argument("--engines", nargs="+", default=["cells", "triton"], choices=["reference", "cells", "triton"])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=160, help="of a client")
    parser.add_argument("--rounds", type=int, default=5, help="at least 3: the first and the last are not counted")
    parser.add_argument("--dim", type=int, default=200, help="of word vectors")
    parser.add_argument("--hidden", type=int, default=64, help="units of a direction")
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--device", default="cuda", help="cuda; cpu tries the benchmark out")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    given = parser.parse_args(words)
    if given.rounds < 3:
        parser.exit(2, "error: --rounds: at least 3, since the first and the last are not counted\n")
    if any(given.actors) and find_spec("ray") is None:
        parser.exit(2, "error: --actors: Ray is not installed: --actors 0 measures one process without it\n")
    try:
        device = device_of(given.device)
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    corpus, rows = synthetic.corpus(given.clients, given.texts, given.vocabulary), []
    if any(given.actors):
        from actors.cluster import connect

        connect(None, num_cpus=max(given.actors), num_gpus=1 if device.type == "cuda" else 0)
    for actors in sorted(given.actors, reverse=True):
        for engine in given.engines:
            for stack in given.stacks if engine != "reference" else [1]:
                made = experiment(engine, stack, given.rounds, given.dim, given.hidden)
                rows.append(measured(made, corpus, actors, device))
                print(table(rows[-1:]), flush=True)
                write(given.json, rows)
    print(f"\n{table(rows)}")
    return rows


if __name__ == "__main__":
    main()
