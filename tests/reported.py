"""Folders of sweeps that reports are made from, trained in this process as the commands leave them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dashboards.report import Sweep
from dashboards.trial import Outcome
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.files import validate
from fedtext.corpora.prepare import prepare
from fedtext.state.checkpoint import history
from fedtext.testing.runs import federated
from sweeps.folder import RunFolder
from sweeps.report import collected
from tune_spaces.cases import cases as make_cases

BASE: dict[str, Any] = {
    "name": "small",
    "corpus": {"name": "demo", "clients": 3, "train": 30, "test": 20, "validation": 0.25},
    "model": {"embedding": {"dim": 4}, "hidden": 4, "head": {"hidden": 4}},
    "method": {"name": "kteps"},
    "training": {"rounds": 3, "local_epochs": 1, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.01}},
    "evaluation": {"personalize": {"steps": 2}},
    "baselines": ["local_only", "fedavg"],
    "seeds": 2,
    "space": {"method.lambda1": {"grid": [0.0, 0.1]}},
}
NOISY = [{"clip": {"norm": 0.5}}, {"gaussian": {"sigma": 0.5}}]
PRIVATE: dict[str, Any] = BASE | {
    "name": "private",
    "method": {"name": "fedavg"},
    "audits": ["membership"],
    "baselines": ["local_only"],
    "space": {"uplink": {"grid": [[], NOISY]}, "training.optimizer.lr": {"grid": [0.01, 0.1]}},
}


def trained(
    path: Path, content: dict[str, Any], failed: Iterable[str] = (), left: Iterable[str] = (), command: str = "sweep"
) -> Path:
    """Train every case of a sweep, and record it as the command does.

    Args:
        path: The folder of the run.
        content: The content of the experiment file.
        failed: Ids of cases that fail after their first round.
        left: Ids of cases that are interrupted after it.
        command: The command that began the run.
    """
    experiment = validate(content)
    folder = RunFolder(path)
    folder.create(content, experiment, command)
    for case in make_cases(content, experiment, "the experiment"):
        one = case.experiment
        corpus = prepare(one.corpus, one.model.embedding, one.seed, None, one.own_vocabularies)
        federation = federated(one, corpus, LocalFleet, folder.case(case.id) / "checkpoint")
        for _ in federation.run():
            if case.id in {*failed, *left}:
                break
        if case.id in failed:
            folder.record(case.id, Outcome("failed", (), "client <films> failed: its loss is not finite"))
        elif case.id not in left:
            folder.record(case.id, Outcome("finished"))
    return path


def read(path: Path) -> Sweep:
    """The content of the report of a run."""
    folder = RunFolder.found(path.parent, path.name, "report")
    content = folder.content()
    experiment = validate(content)
    return collected(folder, experiment, make_cases(content, experiment, "here"))


def records(path: Path, case: str) -> list[dict[str, Any]]:
    """The records of a case, as they are in its last checkpoint."""
    return [record.to_json() for record in history(path / case / "checkpoint")]
