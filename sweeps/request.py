"""Requests for a run or a sweep, from a command line or a Python call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedtext.config.experiment import Experiment

Command = Literal["run", "sweep"]
Given = str | Path | Mapping[str, Any] | Experiment  # the path or name of a file, its content, or the experiment


@dataclass(frozen=True)
class Cluster:
    """The Ray cluster to use.

    Attributes:
        address: Its address; None: $RAY_ADDRESS, else Ray is started on this machine.
        num_cpus: Logical CPUs of a Ray that is started here, None: as many as this machine has. On a cluster those to
            wait for, None: it is used as it is.
        num_gpus: Logical GPUs, likewise.
    """

    address: str | None = None
    num_cpus: int | None = None
    num_gpus: int | None = None


@dataclass(frozen=True)
class Request:
    """A request for a run or a sweep.

    Attributes:
        command: ``run`` leaves the space, baselines and seeds of the experiment aside.
        experiment: The path of a file, the name of one in ``tune_spaces/``, its content, or an experiment; None to
            resume a run by its name alone.
        overrides: Changes to it, ``key=value``.
        plugins: Further plug-ins.
        name: The name of the run; None: the experiment's name and the time.
        resume: The name or the folder of a run to continue.
        seed: Replaces the experiment's seed, if not None.
        data: The folder of corpora; None: $FEDTEXT_DATA, or the user's cache folder.
        cluster: The Ray cluster to use.
    """

    command: Command
    experiment: Given | None
    overrides: Sequence[str] = ()
    plugins: Sequence[str | Path] = ()
    name: str | None = None
    resume: str | None = None
    seed: int | None = None
    data: str | Path | None = None
    cluster: Cluster = field(default_factory=Cluster)
