"""Overhead of the platform over the training itself, and its scaling.

  overhead   CPU and wall time of rounds through Ray (server, client actors, wire, aggregation) over the bare loop: the
             same engine on the same batches in as many processes, without Ray, wire or server. Workloads: KTEPS on
             16 clients x 1,600 texts, and 100 and 1,000 clients with a tiny local update, one by one and in stacks.
  scaling    seconds and memory per round by clients (10, 100, 1,000), actors (1, 2) and model size
  transport  broadcast of a 44 MB model to an actor and its update back

Wall times want two idle cores. Memory is the proportional set size of all processes together.
"""

import argparse
import multiprocessing
import os
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Tree, peak_pss, spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    words = [sys.executable, "-m", "benchmarks.platform_cost", *sys.argv[1:]]
    os.execve(sys.executable, words, os.environ | ENVIRONMENT)

import numpy as np
import ray

from actors.cluster import connect
from actors.fleet import RayFleet
from actors.placement import Plan, assign
from actors.shipment import ship
from benchmarks import synthetic
from benchmarks.synthetic import experiment
from fedtext.client.participants import described, participants, stacks
from fedtext.client.worker import Worker
from fedtext.config.engine import stack_size
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.layout import Layout
from fedtext.parameters import initial
from fedtext.server.start import start

REAL = {"name": "bigru", "embedding": {"dim": 200}, "hidden": 64}
SMALL = {"name": "bigru", "embedding": {"dim": 32}, "hidden": 32}
TINY = {"name": "gru", "embedding": {"dim": 4}, "hidden": 4, "head": {"hidden": 4}}


def through_ray(made: Experiment, corpus: Corpus, actors: int, memory: bool = False) -> dict[str, Any]:
    """Run rounds as a trial does: seconds to the first, wall and CPU seconds of the others, peak memory in MB.

    Memory is measured every two seconds, with ``memory`` only: it takes time to walk the page tables of all processes.
    """
    began = time.perf_counter()
    federation = start(made, corpus, partial(RayFleet, made, ship(made, corpus), plan=Plan(actors, 1, 0, 1)))
    try:
        walls, cpus, tree = [], [], Tree()
        with peak_pss(2.0) if memory else nullcontext([0]) as peak:
            before, cpu = time.perf_counter(), tree.cpu()
            for record in federation.run():
                now, used = time.perf_counter(), tree.cpu()
                if record.round == 1:
                    first = now - began
                else:
                    walls.append(now - before)
                    cpus.append(used - cpu)
                before, cpu = now, used
        return {"first round s": first, "wall s": walls, "cpu s": cpus, "peak MB": peak[0] / 1e6}
    finally:
        federation.fleet.close()


def _bare(made: Experiment, corpus: Corpus, hosted: list[int], rounds: int, ready: Any, times: Any) -> None:
    """Train some clients, without payloads or anything else that follows training."""
    shared, private = initial(made, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    clients = [client for client in participants(made, corpus) if client.id in set(hosted)]
    worker = Worker(made, corpus, clients, private)
    # what comes after training belongs to the platform
    nothing: Any = (np.zeros(0, np.uint8), {}, {})
    worker._sent = lambda *turn: nothing  # type: ignore[method-assign]
    size, _ = stack_size(made, len(corpus.clients))
    for round_ in range(1, rounds + 1):
        ready.wait()
        start, cpu = time.perf_counter(), time.process_time()
        for members in stacks(hosted, size):
            faults = [reply.error for reply in worker.train(flat, round_, members) if reply.error]
            assert not faults, faults
        times.put((round_, time.perf_counter() - start, time.process_time() - cpu))


def bare(made: Experiment, corpus: Corpus, processes: int) -> dict[str, Any]:
    """Do the same training in ``processes`` processes: wall of the slowest and CPU of all, after the first round."""
    rounds, context = made.training.rounds, multiprocessing.get_context("spawn")
    costs = dict(enumerate(described(made, corpus, participants(made, corpus)).tokens.tolist()))
    ready, times = context.Barrier(processes), context.Queue()
    running = [
        context.Process(target=_bare, args=(made, corpus, hosted, rounds, ready, times))
        for hosted in assign(costs, processes, stack_size(made, len(corpus.clients))[0])
    ]
    for process in running:
        process.start()
    found = [times.get(timeout=900) for _ in range(rounds * processes)]
    for process in running:
        process.join()
    by_round = [[(wall, cpu) for at, wall, cpu in found if at == round_] for round_ in range(2, rounds + 1)]
    return {
        "wall s": [max(wall for wall, _ in each) for each in by_round],
        "cpu s": [sum(cpu for _, cpu in each) for each in by_round],
    }


def overhead(quick: bool) -> list[dict[str, Any]]:
    rows, texts = [], 200 if quick else 1600
    cases: list[tuple[str, dict[str, Any], int, int, int, int | str]] = [
        (f"kteps 16 x {texts:,}", REAL, 16, texts, 50_000, 8),
        ("tiny, 100 clients", TINY, 100, 1, 50, 1),
        ("tiny, 1,000 clients", TINY, 1000, 1, 50, 1),
        ("tiny, 1,000 clients, stacks", TINY, 1000, 1, 50, "auto"),
    ]
    for name, model, clients, texts, vocabulary, stack in cases:
        corpus = synthetic.corpus(clients, texts, vocabulary, 10 if clients >= 100 else 200)
        made = experiment(model, 4 if clients < 100 else 8, stack)
        loop, platform = bare(made, corpus, 2), through_ray(made, corpus, 2)
        row: dict[str, Any] = {"workload": name}
        for figure in ("wall s", "cpu s"):
            plain, whole = spread(loop[figure]), spread(platform[figure])
            row |= {f"bare {figure}": plain, f"platform {figure}": whole}
            row[f"added {figure[:-2]}, %"] = 100 * (whole["median"] / plain["median"] - 1)
        added = spread(platform["wall s"])["median"] - spread(loop["wall s"])["median"]
        rows.append(row | {"added wall, ms per client": 1000 * added / clients})
    return rows


def scaling(quick: bool) -> list[dict[str, Any]]:
    rows = []
    cases = [(SMALL, 5_000, 10, 1), (SMALL, 5_000, 10, 2), (SMALL, 5_000, 100, 1), (SMALL, 5_000, 100, 2)]
    cases += [] if quick else [(SMALL, 5_000, 1000, 2), (TINY, 5_000, 100, 2), (REAL, 50_000, 100, 2)]
    for model, vocabulary, clients, actors in cases:
        corpus = synthetic.corpus(clients, 16, vocabulary)
        made = experiment(model, 3)
        found = through_ray(made, corpus, actors, memory=True)
        wall = spread(found["wall s"])
        rows.append(
            {
                "clients": clients,
                "actors": actors,
                "parameters": sum(tensor.size for tensor in initial(made, corpus)[0].values()),
                "stack": stack_size(made, clients)[0],
                "wall s a round": wall,
                "CPU s a round": spread(found["cpu s"]),
                "samples / s": 16 * clients / wall["median"],
                "peak MB, all processes": found["peak MB"],
            }
        )
    return rows


@ray.remote
class Echo:
    """An actor that returns an update as large as the parameters it received."""

    def update(self, flat: np.ndarray) -> np.ndarray:
        return flat + np.float32(1)


def transport(megabytes: int = 44, rounds: int = 20) -> list[dict[str, Any]]:
    flat = np.zeros(megabytes * 1_000_000 // 4, np.float32)
    rows = []
    for count in (1, 2):
        actors = [Echo.remote() for _ in range(count)]  # type: ignore[attr-defined]
        walls = []
        for _ in range(rounds + 3):
            start = time.perf_counter()
            handle = ray.put(flat)
            for update in ray.get([actor.update.remote(handle) for actor in actors]):
                assert update[0] == 1
            del handle, update  # as a round does
            walls.append(1000 * (time.perf_counter() - start) / count)
        rows.append({"actors": count, "MB": megabytes, "round trip ms per actor": spread(walls[3:])})
        for actor in actors:
            ray.kill(actor)
    return rows


PARTS = {"overhead": overhead, "scaling": scaling, "transport": lambda quick: transport()}


def main(words: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], choices=[*PARTS, []], metavar="PART")
    parser.add_argument("--quick", action="store_true", help="smaller workloads")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args(words)
    connect(None, num_cpus=2)
    found: dict[str, Any] = {"idle Ray, MB": Tree().pss() / 1e6}
    for name in arguments.parts or PARTS:
        found[name] = PARTS[name](arguments.quick)
        print(f"\n{name}\n\n{table(found[name])}", flush=True)
    ray.shutdown()
    write(arguments.json, found)
    return found


if __name__ == "__main__":
    main()
