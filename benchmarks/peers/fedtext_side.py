"""fedtext: its Federation on Ray actors, as a trial runs it, without Tune and MLflow."""

from actors.cluster import connect
from actors.fleet import RayFleet, ship
from actors.placement import Plan
from benchmarks import synthetic
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.server.federation import Federation

from .workloads import Task, Workload


def experiment(work: Workload, engine: str = "auto") -> Experiment:
    """Return the workload as an experiment."""
    optimizer = {"name": "sgd", "lr": work.lr, "momentum": work.momentum}
    return Experiment.model_validate(
        {
            "name": "peers",
            "seed": work.seed,
            "corpus": {"name": "demo"},  # stands in: the texts are synthetic
            "method": "fedavg",
            "model": {"embedding": {"dim": work.dim}, "hidden": work.hidden, "head": {"hidden": work.head}},
            "training": {
                "rounds": work.rounds,
                "local_epochs": 1,
                "batch_size": work.batch,
                "optimizer": optimizer,
                "engine": engine,
            },
            "evaluation": {"personalize": None},  # and no client has texts to evaluate on
        }
    )


def corpus(work: Workload) -> Corpus:
    return synthetic.corpus(work.clients, work.texts, work.vocabulary, work.longest)


def run(file: str) -> None:
    task = Task.read(file)
    described = experiment(task.workload, task.engine)
    connect(None, num_cpus=task.workers)
    fleet = RayFleet(described, ship(described, corpus(task.workload)), {}, Plan(task.workers, 1, 0, 1), None)
    federation = Federation(described, task.initial(), fleet, None)
    for _ in federation.run():
        task.round_ended()
    task.finish(federation.state)
