"""fedtext in one process, without Ray: its Federation, as ``fedtext run --no-ray`` runs it."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedtext.client.local_fleet import LocalFleet
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.runtime.compiled import compile_problem
from fedtext.server.fleet import Fleet
from fedtext.server.start import start

from .experiments import corpus, experiment
from .workloads import Task


def run(file: str) -> None:
    task = Task.read(file)
    described = choose_engine(experiment(task.workload, task.changes), False, compile_problem())
    texts = corpus(task.workload, task.data)
    task.finish(train(task, described, texts, partial(LocalFleet, described, texts)))


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
