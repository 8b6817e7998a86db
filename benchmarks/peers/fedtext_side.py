"""fedtext: its Federation on Ray actors, as a trial runs it, without Tune and MLflow."""

from functools import partial

from actors.cluster import compile_problem, connect
from actors.fleet import RayFleet
from actors.placement import Plan
from actors.shipment import ship
from fedtext.config.engine import choose_engine

from .experiments import corpus, experiment
from .local_side import train
from .workloads import Task


def run(file: str) -> None:
    task = Task.read(file)
    connect(None, num_cpus=task.workers)
    described = choose_engine(experiment(task.workload, task.changes), False, compile_problem())
    texts = corpus(task.workload, task.data)
    fleet = partial(RayFleet, described, ship(described, texts), plan=Plan(task.workers, 1, 0, 1))
    task.finish(train(task, described, texts, fleet))
