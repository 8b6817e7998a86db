"""fedtext: its Federation on Ray actors, as a trial runs it, without Tune and MLflow."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from actors.cluster import compile_problem, connect
from actors.fleet import RayFleet
from actors.placement import Plan
from actors.shipment import ship
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.server.fleet import Fleet
from fedtext.server.start import start

from .experiments import corpus, experiment
from .workloads import Task


def run(file: str) -> None:
    task = Task.read(file)
    connect(None, num_cpus=task.workers)
    described = choose_engine(experiment(task.workload, task.changes), False, compile_problem())
    texts = corpus(task.workload, task.data)
    fleet = partial(RayFleet, described, ship(described, texts), plan=Plan(task.workers, 1, 0, 1))
    task.finish(train(task, described, texts, fleet))


def train(
    task: Task, described: Experiment, texts: Corpus, fleet: Callable[..., Fleet]
) -> dict[str, NDArray[np.float32]]:
    """Return the trained parameters after the last round.

    Args:
        task: The task.
        described: Its experiment.
        texts: Its corpus.
        fleet: Makes the clients, as in ``start``.
    """
    federation, begun = start(described, texts, fleet), task.initial()
    federation.flat = federation.layout.pack(federation.state | begun)
    for _ in federation.run():
        task.round_ended()
    return {name: federation.state[name] for name in begun}
