"""Many trials with failures: their ranking, and what the failures and the platform cost.

The demo is swept over the weight of FedProx's proximal term. One trial in 40 has a client whose process is killed once
(SIGKILL), one in 40 a client whose code raises: 5 % of the trials. The other way is the same sweep with one trial at a
time and without failures, and training alone, in one process without Ray, MLflow and checkpoints.

Printed are CPU seconds of all processes, what failures and platform add, and whether the trials that finished in all
ways are ranked alike. Wall times want idle cores. `python -m benchmarks.search --trials 200 --rounds 4`
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.measure import Tree, table, write
from fedtext.config.files import find
from fedtext.runtime.environment import ENVIRONMENT
from fedtext.state.checkpoint import history

ROOT = Path(__file__).resolve().parent.parent
EVERY, KILLED, RAISES = 40, 7, 27  # of 40 trials, the one whose client is killed, and the one whose client raises

INJECTED = f'''
import os, signal
from pathlib import Path
from typing import Literal

from pydantic import Field

from fedtext.methods.fedprox import FedProx


class Injected(FedProx):
    """FedProx in which clients of some values of mu fail."""

    name: Literal["injected"] = "injected"
    marks: str = Field("", description="folder that remembers who was killed; empty: no client fails")

    def loss(self, model, received, batch):
        place = round(1000 * self.mu) % {EVERY}
        if self.marks and place == {RAISES}:
            raise ArithmeticError("an injected failure")
        mark = Path(self.marks) / f"{{self.mu:g}}"
        if self.marks and place == {KILLED} and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, received, batch)
'''

ALONE = """
import json, sys
import fedtext
content, weights, plugin = json.loads(sys.stdin.read())
for weight in weights:
    result = fedtext.run(fedtext.load(content, f"method.mu={weight}", plugins=[plugin]))
    print(json.dumps([weight, result.metrics["loss"]]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """The end of one way of running all trials.

    Attributes:
        losses: The last training loss of each trial that finished, by its mu.
        errors: The causes of failures, by mu.
        cpu: CPU seconds of all processes.
        wall: Wall seconds.
    """

    losses: dict[float, float]
    errors: dict[float, str]
    cpu: float
    wall: float

    def ranking(self, among: Sequence[float]) -> list[float]:
        """Return the trials of ``among`` by their losses, the smallest first."""
        return sorted(among, key=lambda mu: self.losses[mu])


def content(trials: int, rounds: int, marks: Path | None, **changes: Any) -> dict[str, Any]:
    """Return the experiment.

    Args:
        trials: Number of trials.
        rounds: Number of rounds of each.
        marks: An empty folder for failing clients; None: no client fails.
        changes: Replaced sections.
    """
    made = yaml.safe_load(find("demo.yaml").read_text())
    made |= {
        "method": {"name": "injected", "marks": str(marks or "")},
        "baselines": [],
        "evaluation": {"personalize": None},
    }
    made["space"] = {"method.mu": {"grid": [number / 1000 for number in range(trials)]}}
    made["training"] = made["training"] | {"rounds": rounds, "local_epochs": 1}
    made["tune"] = {"metric": "loss"}
    return made | changes


def swept(made: dict[str, Any], folder: Path, cpus: int = 2) -> Ended:
    """Run all trials as a sweep.

    Args:
        made: The experiment.
        folder: An empty folder, for everything that is written.
        cpus: Logical CPUs of Ray.
    """
    (folder / "injected.py").write_text(INJECTED)
    (folder / "experiment.yaml").write_text(yaml.safe_dump(made))
    words = [
        "platform.sweep",
        str(folder / "experiment.yaml"),
        "--plugin",
        str(folder / "injected.py"),
        "--name",
        "run",
    ]
    words += ["--num-cpus", str(cpus)]
    used = _measured(words, folder, {"FEDTEXT_HOME": str(folder)}, allowed=(0, 1))
    losses, errors = {}, {}
    for number, mu in enumerate(made["space"]["method.mu"]["grid"]):
        (case,) = (folder / "runs" / "run").glob(
            f"{number:0{max(2, len(str(len(made['space']['method.mu']['grid']) - 1)))}d}-*"
        )
        ended = json.loads((case / "outcome.json").read_text())
        if ended["status"] == "finished":
            losses[mu] = history(case / "checkpoint")[-1].metrics["loss"]
        else:
            errors[mu] = ended["error"]
    return Ended(losses, errors, *used)


def alone(made: dict[str, Any], folder: Path) -> Ended:
    """Run all trials one after the other in a process without Ray. Arguments as of ``swept``."""
    (folder / "injected.py").write_text(INJECTED)
    single = {key: value for key, value in made.items() if key not in ("space", "tune", "baselines")}
    asked = json.dumps([single, made["space"]["method.mu"]["grid"], str(folder / "injected.py")])
    used = _measured(["-c", ALONE], folder, {}, asked)
    lines = map(json.loads, (folder / "stdout").read_text().splitlines())
    return Ended(dict(lines), {}, *used)


def _measured(
    words: Sequence[str], folder: Path, names: dict[str, str], asked: str = "", allowed: Sequence[int] = (0,)
) -> tuple[float, float]:
    """Run a command, and return the CPU seconds of its processes, and its wall time."""
    command = [sys.executable, *(words if words[0] == "-c" else ["-m", *words])]
    began = time.perf_counter()
    with open(folder / "stdout", "w") as out, open(folder / "stderr", "w") as err:
        pipe: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": out, "stderr": err, "cwd": ROOT, "text": True}
        running = subprocess.Popen(command, env=os.environ | ENVIRONMENT | names, **pipe)
        assert running.stdin
        running.stdin.write(asked)
        running.stdin.close()
        tree, cpu = Tree(psutil.Process(running.pid)), 0.0
        while running.poll() is None:
            cpu = tree.cpu()
            time.sleep(0.25)
    assert running.returncode in allowed, (folder / "stderr").read_text()[-2000:]
    return cpu, time.perf_counter() - began


def conclusion(found: Mapping[str, Ended], trials: int) -> str:
    """Return in a sentence what failures and the platform cost, and whether the rankings agree."""
    failures, reference, alone = (found[name] for name in ("failures", "one at a time", "alone"))
    both = sorted(failures.losses)
    alike = all(one.ranking(both) == reference.ranking(both) for one in found.values())
    return (
        f"{len(failures.errors)} of {trials} trials failed. Failures and trials side by side: "
        f"{failures.cpu / reference.cpu - 1:+.1%} CPU. Platform: {(reference.cpu - alone.cpu) / trials:.2f} CPU s "
        f"a trial ({reference.cpu / alone.cpu - 1:+.0%} of training alone). The {len(both)} trials that finished "
        f"are ranked {'alike in all ways' if alike else 'DIFFERENTLY'}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="40 trials of 2 rounds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    words = parser.parse_args()
    trials, rounds = (40, 2) if words.quick else (words.trials, words.rounds)
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name for name in ("failures", "one at a time", "alone", "marks")}
        for folder in folders.values():
            folder.mkdir()
        ways: dict[str, Callable[[Path], Ended]] = {
            "failures": partial(swept, content(trials, rounds, folders["marks"])),
            "one at a time": partial(swept, content(trials, rounds, None, tune={"metric": "loss", "concurrent": 1})),
            "alone": partial(alone, content(trials, rounds, None)),
        }
        found = {}
        for name, way in ways.items():
            found[name] = way(folders[name])
            print(f"{name}: {trials} trials in {found[name].wall:.0f} s", file=sys.stderr, flush=True)
    first, reference = found["failures"], found["one at a time"]
    both = sorted(first.losses)
    rows = [
        {
            "way": name,
            "CPU s": one.cpu,
            "CPU s a trial": one.cpu / trials,
            "CPU against one at a time": one.cpu / reference.cpu,
            "wall s": one.wall,
            "finished": len(one.losses),
            "same ranking": str(one.ranking(both) == reference.ranking(both)),
        }
        for name, one in found.items()
    ]
    print(table(rows))
    print(conclusion(found, trials))
    write(words.json, rows)


if __name__ == "__main__":
    main()
