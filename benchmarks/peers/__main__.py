"""The same computation in fedtext, Flower and pfl-research: `make bench-peers`, or `python -m benchmarks.peers --help`.

Every system gets the same initial weights, the same texts in the same batches, the same model, optimizer and
sample-weighted FedAvg over all clients, and one torch thread in each of --workers processes. The last column shows
the largest difference of any final weight from fedtext's in the same repetition, beside the largest change by training;
a run whose difference is larger than rounding explains is reported as failed. Runs alternate (A B C A B C ...); values
are medians over the repetitions, with minimum and maximum. fedtext keeps and sends only the embedding rows that a
client's texts use and has its own recurrent layers; the others train torch's modules on the whole embedding table.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedtext.parameters import initial
from fedtext.runtime.environment import ENVIRONMENT

from .environments import cache_folder, python_of, versions
from .fedtext_side import corpus, experiment
from .measure import measure
from .report import Result, table
from .workloads import FULL, QUICK, Task, Workload

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "fedtext"
SYSTEMS = {  # the side that runs it, and fedtext's engine
    "fedtext": ("fedtext", "auto"),
    "fedtext-reference": ("fedtext", "reference"),
    "flower": ("flower", ""),
    "pfl": ("pfl", ""),
}
TIMEOUT_S = 900.0
TOLERANCE = 1e-4  # Flower sums weights, not their changes, in float32: over 1000 clients that alone is 4e-5 a round
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "PYTHONUNBUFFERED": "1"}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as on ctrl-c, the running system is ended first
    arguments = words()
    works = [work for work in (QUICK if arguments.quick else FULL) if work.name in arguments.workloads]
    turns = arguments.turns or (1 if arguments.quick else 3)
    pythons = interpreters(arguments.systems)
    results = []
    with tempfile.TemporaryDirectory(prefix="peers") as made:
        folder = (arguments.folder or Path(made)).resolve()
        for work in works:
            print(f"{work.name}: {work}", file=sys.stderr, flush=True)
            results += compare(work, arguments.systems, arguments.workers, turns, pythons, folder)
    about = {"python": platform.python_version(), "cpus": os.cpu_count(), "torch": version("torch"), **versions()}
    print(table(results))
    print("\n" + ", ".join(f"{name} {value}" for name, value in about.items()))
    if arguments.json:
        content = {"about": about, "turns": turns, "results": [result.content() for result in results]}
        arguments.json.write_text(json.dumps(content, indent=1))


def words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [work.name for work in FULL]
    parser.add_argument("--workloads", nargs="+", default=names, choices=names)
    parser.add_argument("--systems", nargs="+", default=["fedtext", "flower", "pfl"], choices=list(SYSTEMS))
    parser.add_argument("--workers", type=int, default=2, help="processes that train (default: 2)")
    parser.add_argument("--turns", type=int, help="default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="small workloads, to see that everything works")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--folder", type=Path, help="keep the runs' logs and weights here")
    arguments = parser.parse_args()
    if arguments.folder and arguments.folder.exists():
        parser.error(f"--folder: {arguments.folder} exists already; name a new one")
    return arguments


def interpreters(systems: Sequence[str]) -> dict[str, str | RuntimeError]:
    """Return each system's interpreter, or why there is none."""
    found: dict[str, str | RuntimeError] = {}
    for side in dict.fromkeys(SYSTEMS[system][0] for system in systems):
        try:
            found[side] = sys.executable if side == "fedtext" else str(python_of(side))
        except RuntimeError as error:
            found[side] = RuntimeError(f"its environment cannot be made: {error}")
    return found


def compare(
    work: Workload,
    systems: Sequence[str],
    workers: int,
    turns: int,
    pythons: dict[str, str | RuntimeError],
    folder: Path,
) -> list[Result]:
    """Run all systems on one workload, alternating. One that fails is left out of later repetitions."""
    inputs = folder / work.name
    prepare(work, inputs)
    results = {system: Result(work, system, workers, [], [], []) for system in systems}
    start = load(inputs / "initial.npz")
    for turn in range(turns):
        reference = None
        for system, result in results.items():
            if result.failure:
                continue
            side, engine = SYSTEMS[system]
            try:
                run = inputs / f"{turn}-{system}"
                run.mkdir()
                task = Task(work, workers, engine, inputs, run)
                reading = measure(task, *command(task, side, pythons[side]), timeout=TIMEOUT_S)
                final = load(run / "final.npz")
                reference = final if system == REFERENCE else reference
                result.differences.append(same(reference, final) if reference else None)
                result.changes.append(distance(start, final))
                result.readings.append(reading)
            except (RuntimeError, OSError) as error:
                result.failure = str(error)
                print(f"  {system}: {error}", file=sys.stderr, flush=True)
                continue
            print(f"  turn {turn + 1}, {system}: {result.figures()['round_s'][-1]:.3g} s a round", file=sys.stderr)
    return list(results.values())


def prepare(work: Workload, inputs: Path) -> None:
    """Write the initial weights and the clients' texts, in ids of the whole vocabulary."""
    inputs.mkdir(parents=True)
    made = corpus(work)
    shared, _ = initial(experiment(work), made)
    np.savez(inputs / "initial.npz", **shared)
    lengths = np.concatenate([np.diff(client.train.offsets) for client in made.clients])
    np.savez(
        inputs / "data.npz",
        tokens=np.concatenate([client.rows_R[client.train.tokens_T] for client in made.clients]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        labels=np.concatenate([client.train.labels_N for client in made.clients]),
        sizes=np.array([len(client.train) for client in made.clients]),
    )


def command(task: Task, side: str, python: str | RuntimeError) -> tuple[list[str], dict[str, str], Path]:
    """Return the command, its environment, and its working folder."""
    if isinstance(python, RuntimeError):
        raise python
    # A peer must not see this repository's folders beside its own packages: only this one, as a package of its own.
    module, path, place = "peers.side", ROOT / "benchmarks", task.folder
    if side == "fedtext":
        module, path, place = "benchmarks.peers.side", ROOT, ROOT
    environment = QUIET | ENVIRONMENT | {"PYTHONPATH": str(path), "FLWR_HOME": str(cache_folder() / "flwr")}
    return [python, "-m", module, side, str(task.write())], environment, place


def load(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as arrays:
        return dict(arrays)


def same(reference: dict[str, np.ndarray], final: dict[str, np.ndarray]) -> float:
    """Return the largest difference of a weight. Raises RuntimeError if it is more than rounding explains."""
    if reference.keys() != final.keys():
        raise RuntimeError(f"its weights have other names: {', '.join(sorted(reference.keys() ^ final.keys()))}")
    found = distance(reference, final)
    if not found < TOLERANCE:
        raise RuntimeError(f"its final weights are up to {found:.1e} away from those of {REFERENCE}")
    return found


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


if __name__ == "__main__":
    main()
