"""The provenance of a run as MLflow tags: user, command and experiment; dashboards/versions.py has the versions."""

import getpass
import shlex
import sys
from pathlib import Path

from mlflow.utils.mlflow_tags import (
    MLFLOW_RUN_NOTE,
    MLFLOW_SOURCE_NAME,
    MLFLOW_SOURCE_TYPE,
    MLFLOW_USER,
)

from dashboards.names import logged
from fedtext.config.experiment import Experiment
from fedtext.metrics import column_order, legend
from fedtext.runtime.secrets import redacted


def experiment_tags(experiment: Experiment, seed: bool = True) -> dict[str, str]:
    """Return the tags by which runs are filtered and grouped, those of MLflow's columns for user and command, and the
    description of the run. ``seed``: whether to tag the seed; the run of a case with several seeds has none."""
    command = Path(sys.argv[0] or "python")
    return {
        "method": experiment.method.name,
        "corpus": experiment.corpus.name,
        **({"seed": str(experiment.seed)} if seed else {}),
        MLFLOW_RUN_NOTE: metrics_note(experiment),
        MLFLOW_USER: _user(),
        MLFLOW_SOURCE_TYPE: "LOCAL",
        MLFLOW_SOURCE_NAME: f"{command.parent.name}/{command.name}".lstrip("/"),
    }


def metrics_note(experiment: Experiment) -> str:
    """Return the meaning of the metrics of an experiment, as Markdown: the description of its runs in MLflow."""
    evaluated = sorted(experiment.evaluated_metrics, key=column_order)
    private = ["epsilon", "delta"] if experiment.uplink or experiment.server.noise else []
    audited = [name for audit in experiment.audits for name in audit.metrics]
    measured = ["epsilon_lower", "epsilon_lower_confidence"] if experiment.privacy.canaries else []
    lines = legend([*evaluated, *audited, *private, *measured, "loss", "bytes_total"])
    topics = f"Metrics stand under their topic, {logged('Ag')}. Fractions are from 0 to 1."
    return "\n".join([topics, "", *(f"- `{line.replace(': ', '`: ', 1)}" for line in lines)])


def command_line() -> str:
    """Return the command of ``platform`` that this process runs, without passwords; empty if it is another program."""
    program = Path(sys.argv[0] or "python")
    if program.parent.name != "platform":
        return ""
    return redacted(f"python -m platform.{program.stem} {shlex.join(sys.argv[1:])}".rstrip())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
