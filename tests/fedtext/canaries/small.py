"""Runs with canaries whose models have some thousand parameters."""

from typing import Any

from fedtext.config.experiment import Experiment
from fedtext.records import RoundRecord
from tests import tiny

CORPUS = tiny.corpus(clients=4, texts=3, vocabulary=1500)
POISSON = {"fraction": 0.25, "sampling": "poisson"}
APART = {"fraction": 0.5, "sampling": "separated", "separation": 2}


def central(noise: dict[str, Any], rounds: int = 1, seed: int = 0, canaries: int = 1000, **sections: Any) -> Experiment:
    """Return an experiment with noise of the server on updates of norm 1."""
    server = {"weights": "uniform", "noise": noise}
    return made(rounds, seed, canaries, **({"uplink": [{"clip": {"norm": 1.0}}], "server": server} | sections))


def made(rounds: int, seed: int, canaries: int, dim: int = 12, **sections: Any) -> Experiment:
    """Return an experiment with canaries."""
    training = tiny.TRAINING | {"rounds": rounds, "local_epochs": 1}
    model = {"embedding": {"dim": dim}, "hidden": 4, "head": {"hidden": 3}}
    privacy = {"canaries": {"clients": canaries}} if canaries else {}
    return tiny.experiment(seed=seed, training=training, model=model, privacy=privacy, **sections)


def last(experiment: Experiment) -> RoundRecord:
    """Return the record of the last round."""
    return list(tiny.federation(experiment, CORPUS).run())[-1]
