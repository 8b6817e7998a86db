"""Running the commands as a person does, and reading what they leave behind."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from fedtext.client.local_fleet import LocalFleet
from fedtext.config import files
from fedtext.config.engine import choose_engine
from fedtext.corpora.prepare import prepare
from fedtext.runtime.compiled import compile_problem
from fedtext.state.checkpoint import Checkpoints, history, recorded
from fedtext.testing.runs import federated
from tests import ROOT
from tests.loops import nonempty

# Three cases of a few seconds each: one reference row and a grid of two.
EXPERIMENT: dict[str, Any] = {
    "name": "kteps",
    "corpus": {"name": "demo", "clients": 4, "train": 40, "test": 20, "validation": 0.25},
    "model": {"embedding": {"dim": 8}, "hidden": 8, "head": {"hidden": 8}},
    "method": {"name": "kteps"},
    "training": {"rounds": 3, "local_epochs": 1, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.01}},
    "evaluation": {"personalize": {"steps": 2}},
    "baselines": ["fedavg"],
    "space": {"method.lambda1": {"grid": [0.01, 0.1]}},
}

# A process that has imported what commands import, which takes them seconds, and forks for each command. It reads
# [environment, words, file for stdout, file for stderr] and says the child's pid, or reads a pid and says its exit
# status, null while it runs.
FORKING = """
import atexit, json, os, sys
import platform.ls, platform.report, platform.reproduce, platform.run, platform.sweep
import sweeps.prepare, sweeps.reproduce, sweeps.trials
from platform._words import guarded

def become(environment, words, *files):
    for number, file in enumerate([os.devnull, *files]):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    os.environ.update(environment)
    sys.argv = words
    try:
        status = guarded(getattr(platform, words[0]).main)()
    except SystemExit as ended:
        status = ended.code
    atexit._run_exitfuncs()  # Ray's among them; to take down what was only imported takes as long again
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)

def answered(asked):
    if isinstance(asked, list):
        return os.fork() or become(*asked)
    ended, status = os.waitpid(asked, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None

for line in sys.stdin:
    print(json.dumps(answered(json.loads(line))), flush=True)
"""


def write(folder: Path, **changes: Any) -> Path:
    """The experiment above as ``folder``/kteps.yaml, with whole sections replaced."""
    file = folder / "kteps.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT | changes))
    return file


def environment(home: Path) -> dict[str, str]:
    """Everything a command writes goes to ``home``."""
    return os.environ | {"FEDTEXT_HOME": str(home), "COLUMNS": "200"}


def command(home: Path, *words: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """``python -m platform.<words>`` in the repository."""
    argv = [sys.executable, "-m", f"platform.{words[0]}", *words[1:]]
    return subprocess.run(argv, cwd=ROOT, env=environment(home), capture_output=True, text=True, timeout=timeout)


@functools.cache
def _forking() -> subprocess.Popen[str]:
    """The one process that forks; it ends with this one, whose end of the pipe it reads."""
    argv = [sys.executable, "-c", FORKING]
    return subprocess.Popen(
        argv, cwd=ROOT, env=environment(ROOT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _ask(asked: int | list[Any]) -> Any:
    process = _forking()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(asked), file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


class Forked:
    """``platform.<words>`` in a process of its own that had nothing left to import."""

    def __init__(self, home: Path, *words: str) -> None:
        self._said = tempfile.TemporaryDirectory()
        self._files = [Path(self._said.name, name) for name in ("out", "err")]
        self.words, self.returncode = words, None
        self.pid = int(_ask([environment(home), list(words), *map(str, self._files)]))

    def poll(self) -> int | None:
        """The exit status, None while the command runs."""
        if self.returncode is None:
            self.returncode = _ask(self.pid)
        return self.returncode

    def wait(self, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(self.words, timeout)
            time.sleep(0.02)
        return subprocess.CompletedProcess(self.words, self.returncode, *(file.read_text() for file in self._files))


def states(run: Path) -> dict[str, dict[str, bytes]]:
    """The final state of every case of a run: the server's buffers and each client's private state."""
    found = {}
    for folder in nonempty(sorted(run.glob("*/checkpoint"))):
        last = Checkpoints(folder, recorded(folder) or "").load()
        assert last is not None
        tensors = {"shared": last.flat, **last.moments} | ({} if last.selected is None else {"selected": last.selected})
        private = {f"client {client}": state for client, state in last.clients.items()}
        found[folder.parent.name] = private | {name: tensor.tobytes() for name, tensor in tensors.items()}
    return found


def accuracies(run: Path) -> dict[str, list[Any]]:
    """The clients' accuracies in every round of every case."""
    return {path.parent.name: [record.clients for record in history(path)] for path in run.glob("*/checkpoint")}


def undisturbed(experiment: dict[str, Any], folder: Path, data: Path | None = None) -> dict[str, bytes]:
    """The final state of one experiment (no space) trained in this process, as case ``local`` of ``folder``."""
    made = files.validate({k: v for k, v in experiment.items() if k not in ("space", "baselines")})
    made = choose_engine(made, False, compile_problem())
    corpus = prepare(made.corpus, made.model.embedding, made.seed, data)
    list(federated(made, corpus, LocalFleet, folder / "local" / "checkpoint").run())
    return states(folder)["local"]


def runs(home: Path, experiment: str = "kteps") -> list[Run]:
    """All MLflow runs of an experiment in ``home``'s store."""
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id]))


def reached(checkpoint: Path, round_: int, driver: Forked | subprocess.Popen[str]) -> None:
    """Waits until the run's checkpoint is at ``round_`` or later."""
    deadline = time.monotonic() + 600
    while not any(int(path.name.partition("-")[2]) >= round_ for path in checkpoint.glob("round-*")):
        assert time.monotonic() < deadline
        if driver.poll() is not None:
            said = driver.communicate() if isinstance(driver, subprocess.Popen) else driver.wait()
            raise AssertionError(f"the run ended too early: {said}")
        time.sleep(0.02)
