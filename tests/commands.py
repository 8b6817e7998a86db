"""Running the commands as a person does, and reading what they leave behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from fedtext import config
from fedtext.checkpoint import Checkpoints, history
from fedtext.corpora.prepare import prepare
from fedtext.federation import Federation, fingerprint
from fedtext.fleet import LocalFleet, participants
from fedtext.parameters import initial

ROOT = Path(__file__).resolve().parent.parent

# Four cases of a few seconds each: one reference row and a grid of three.
EXPERIMENT: dict[str, Any] = {
    "name": "kteps",
    "corpus": {"name": "demo", "clients": 4, "train": 40, "test": 20, "validation": 0.25},
    "model": {"embedding": {"dim": 8}, "hidden": 8, "head": {"hidden": 8}},
    "method": {"name": "kteps"},
    "training": {"rounds": 3, "local_epochs": 1, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.01}},
    "evaluation": {"personalize": {"steps": 2}},
    "baselines": ["fedavg"],
    "space": {"method.lambda1": {"grid": [0.0, 0.01, 0.1]}},
}

# Several commands in one process, since most of a command's time goes into importing.
ONE_BY_ONE = """
import contextlib, io, json, os, sys
import platform.run, platform.sweep
import ray
from platform._words import guarded
for home, words in json.loads(sys.argv[1]):
    os.environ["FEDTEXT_HOME"], sys.argv, said = home, words, io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = guarded(getattr(platform, words[0]).main)()
        except SystemExit as ended:
            status = ended.code
    ray.shutdown()
    print(json.dumps([status, said.getvalue()]), flush=True)
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


def refused(home: Path, cases: list[tuple[str, list[str]]]) -> list[tuple[int, str]]:
    """Status and stderr of each command, given as its home and its words."""
    argv = [sys.executable, "-c", ONE_BY_ONE, json.dumps(cases)]
    done = subprocess.run(argv, cwd=ROOT, env=environment(home), capture_output=True, text=True, timeout=300)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(cases), done.stderr
    return said


def states(run: Path) -> dict[str, dict[str, bytes]]:
    """The final state of every case of a run: the server's buffer and each client's private state."""
    found = {}
    for case in sorted(path.parent for path in run.glob("*/checkpoint")):
        (last,) = case.glob("checkpoint/round-*")
        found[case.name] = {file.name: file.read_bytes() for file in last.iterdir() if file.name != "state.json"}
    return found


def accuracies(run: Path) -> dict[str, list[Any]]:
    """The clients' accuracies in every round of every case."""
    return {path.parent.name: [row["clients"] for row in history(path)] for path in run.glob("*/checkpoint")}


def undisturbed(experiment: dict[str, Any], folder: Path) -> dict[str, bytes]:
    """The final state of one experiment (no space) trained in this process."""
    made = config.validate({k: v for k, v in experiment.items() if k not in ("space", "baselines")})
    corpus = prepare(made.corpus, made.model.embedding, made.seed, None)
    shared, private = initial(made, corpus)
    name = fingerprint(made, corpus.content, len(participants(made, corpus)))
    checkpoints = Checkpoints(folder / "local" / "checkpoint", name)
    list(Federation(made, shared, LocalFleet(made, corpus, private), checkpoints).run())
    return states(folder)["local"]


def runs(home: Path, experiment: str = "kteps") -> list[Run]:
    """All MLflow runs of an experiment in ``home``'s store."""
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id]))
