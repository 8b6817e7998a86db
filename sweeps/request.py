"""What is asked for: by the words of a command, or by the arguments of a Python call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedtext.config.experiment import Experiment

Command = Literal["run", "sweep"]
Given = str | Path | Mapping[str, Any] | Experiment  # a file by its path or name, its content, or what it says


@dataclass(frozen=True)
class Cluster:
    """Which Ray to use.

    Attributes:
        address: Of a cluster; None: $RAY_ADDRESS, else Ray is started on this machine.
        num_cpus: Logical CPUs of a Ray that is started here; None: as many as there are.
        num_gpus: Likewise.
    """

    address: str | None = None
    num_cpus: int | None = None
    num_gpus: int | None = None


@dataclass(frozen=True)
class Request:
    """A run or a sweep that is asked for.

    Attributes:
        command: ``run`` leaves the space, baselines and seeds of the experiment aside.
        experiment: The path of a file, the name of one in ``tune_spaces/``, its content, or an experiment; None where a
            run is resumed under its name alone.
        overrides: Changes to it, ``key=value``.
        plugins: Further plug-ins.
        name: Of the run; None: the experiment's name and the time.
        resume: The name or the folder of a run to go on with.
        seed: In the place of the experiment's; None: that.
        data: The folder in which corpora lie; None: $FEDTEXT_DATA, or the user's cache folder.
        cluster: Which Ray to use.
    """

    command: Command
    experiment: Given | None
    overrides: Sequence[str] = ()
    plugins: Sequence[str | Path] = ()
    name: str | None = None
    resume: str | None = None
    seed: int | None = None
    data: Path | None = None
    cluster: Cluster = field(default_factory=Cluster)
