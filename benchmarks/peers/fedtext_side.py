"""fedtext: its Federation on Ray actors, as a trial runs it, without Tune and MLflow."""

from functools import partial

from actors.cluster import compile_problem, connect
from actors.fleet import RayFleet
from actors.placement import Plan
from actors.shipment import ship
from benchmarks import synthetic
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.server.start import start

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
    connect(None, num_cpus=task.workers)
    described = choose_engine(experiment(task.workload, task.engine), False, compile_problem())
    texts = corpus(task.workload)
    fleet = partial(RayFleet, described, ship(described, texts), plan=Plan(task.workers, 1, 0, 1))
    federation = start(described, texts, fleet)
    federation.flat = federation.layout.pack(task.initial())
    for _ in federation.run():
        task.round_ended()
    task.finish(federation.state)
