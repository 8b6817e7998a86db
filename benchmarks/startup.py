"""Time from the quick start's command to its first round, measured by files, output lines and Ray's log.

Usage: python -m benchmarks.startup [--runs 3] [--json FILE] [EXPERIMENT WORDS...]    (default: demo.yaml)

Every run is `python -m platform.sweep` in a new folder with its own Ray and MLflow store, and is interrupted after its
first round. Times are seconds since the start of the process; CPU seconds are those of the command and its descendants
until then. To compare two checkouts, name both with `--root`: their runs alternate. What Python compiles is kept, as on
most machines, and compiled before the first run: where it may not be kept, each process takes 0.3 s more.
"""

import argparse
import compileall
import json
import os
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Thread

import psutil

from benchmarks.measure import Tree

ROOT = Path(__file__).resolve().parent.parent
IMPORTED = ("fedtext", "platform", "sweeps", "actors", "dashboards", "tune_spaces")
POLL_SECONDS = 0.05
LIMIT_SECONDS = 300
CPU = "CPU seconds until then"


class Run:
    """One run of the command, observed until its first round."""

    def __init__(self, command: list[str], root: Path) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="startup-", dir="/tmp"))  # Ray's sockets need a short path
        environment = os.environ | {
            "FEDTEXT_HOME": str(self.home),
            "PYTHONPATH": str(root),
            "PYTHONUNBUFFERED": "1",
            "RAY_TMPDIR": str(self.home / "r"),
        }
        for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        self.stages: dict[str, float] = {}
        self.names: dict[psutil.Process, str] = {}
        self.started = time.time()
        self.process = subprocess.Popen(
            command, cwd=root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.tree = Tree(psutil.Process(self.process.pid))
        self.output: list[str] = []
        self.reader = Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        """Read the command's output: its first line comes after planning, that of a trial when Tune starts it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now = time.time() - self.started
            self.output.append(line)
            if re.search(r": \d+ trials?, state in", line):
                self.stages.setdefault("experiment checked and planned, Ray joined", now)
            if re.search(r"  started  \d+ rounds", line):
                self.stages.setdefault("Tune has begun the first trial", now)
            if re.search(r"  round 1/\d+  ", line):
                self.stages.setdefault("first round shown", now)

    def watch(self) -> dict[str, float]:
        """Return each stage's time. Raises RuntimeError if there was no first round."""
        found: dict[str, Callable[[], bool]] = {
            "MLflow store opened": (self.home / "mlflow.db").exists,
            "Ray begun": lambda: any(self.home.glob("r/ray/session_2*")),
            "Ray's node is up": lambda: any(self.home.glob("r/ray/session_latest/sockets/raylet")),
            "MLflow store ready": self._store_ready,
            "first round done": lambda: any(self.home.glob("runs/*/*/checkpoint/round-*/state.json")),
        }
        while "first round done" not in self.stages:
            for stage, reached in found.items():
                if stage not in self.stages and reached():
                    self.stages[stage] = time.time() - self.started
            self._count()
            if self.process.poll() is not None or time.time() - self.started > LIMIT_SECONDS:
                raise RuntimeError(f"there was no first round:\n{''.join(self.output)}")
            time.sleep(POLL_SECONDS)
        cpu = self._count()
        while "first round shown" not in self.stages and time.time() - self.started < LIMIT_SECONDS:
            time.sleep(POLL_SECONDS)
        return self.stages | self._actors() | {CPU: cpu}

    def _store_ready(self) -> bool:
        """Whether MLflow has a run. The database is read without a lock, which could delay the command."""
        try:
            with sqlite3.connect(f"file:{self.home / 'mlflow.db'}?mode=ro&immutable=1", uri=True) as database:
                return bool(database.execute("SELECT count(*) FROM runs").fetchone()[0])
        except sqlite3.Error:
            return False

    def _actors(self) -> dict[str, float]:
        """Return when the first trial's server and the last of its client actors were ready, by Ray's log."""
        log = next(self.home.glob("r/ray/session_latest/logs/gcs_server.out")).read_text()
        times = re.findall(r"\[([\d-]+ [\d:]+,\d+) .*Actor created successfully", log)
        ready = [datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp() - self.started for text in times]
        return {"trial's server ready": ready[0], "client actors ready": ready[-1]}

    def _count(self) -> float:
        """Return the CPU seconds of all processes so far, and note their command lines."""
        for process in self.tree.alive():
            with suppress(psutil.Error):
                self.names[process] = " ".join(process.cmdline())[:90]
        return self.tree.cpu()

    def close(self) -> None:
        """Interrupt the command as Ctrl-C does, and kill what does not end."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.tree.kill()
        self.reader.join(5)
        shutil.rmtree(self.home, ignore_errors=True)


def table(runs: list[dict[str, float]]) -> str:
    """Return a Markdown table of each stage's median, minimum and maximum, in the order of time."""
    stages = {name: [run[name] for run in runs] for name in runs[0] if all(name in run for run in runs)}
    lines = ["| stage | median | min | max |", "| --- | --- | --- | --- |"]
    for name, times in sorted(stages.items(), key=lambda item: (item[0] == CPU, statistics.median(item[1]))):
        shown = f"**{name}**" if name == "first round done" else name
        lines.append(f"| {shown} | {statistics.median(times):.1f} | {min(times):.1f} | {max(times):.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", default=["demo.yaml"], help="arguments of `python -m platform.sweep`")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the times of every run to this file")
    parser.add_argument("--root", type=Path, action="append", help="another checkout; runs of several alternate")
    parser.add_argument("--processes", action="store_true", help="CPU seconds of every process of the last run")
    options = parser.parse_args()
    roots = [path.resolve() for path in options.root or [ROOT]]
    found: dict[str, list[dict[str, float]]] = {str(root): [] for root in roots}
    for folder in [root / name for root in roots for name in IMPORTED]:
        compileall.compile_dir(folder, quiet=1)
    for _ in range(options.runs):
        for root in roots:
            run = Run([sys.executable, "-m", "platform.sweep", *options.words], root)
            try:
                found[str(root)].append(run.watch())
                if options.processes:
                    for process, seconds in sorted(run.tree.seen.items(), key=lambda item: -item[1]):
                        print(f"{seconds:6.2f}  {run.names.get(process, 'ended')}")
            except RuntimeError as error:
                print(f"{root}: {error}", file=sys.stderr)
            finally:
                run.close()
    for name, runs in found.items():
        if not runs:
            continue
        print(f"{name}: seconds to the first round, {len(runs)} runs, {os.cpu_count()} cores\n\n{table(runs)}\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
