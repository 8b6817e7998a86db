"""Runs of one experiment in this process, and in client actors."""

from functools import partial
from pathlib import Path

from actors.fleet import RayFleet
from actors.placement import Plan
from actors.shipment import ship
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.server.federation import Federation
from fedtext.server.start import start
from tests import tiny

CORPUS = tiny.corpus(clients=16)
FEW = tiny.corpus(clients=4)
THREE = tiny.TRAINING | {"rounds": 3}
TWO = Plan(2, 1, 0, 1)


def local(experiment: Experiment, corpus: Corpus = CORPUS, folder: Path | None = None) -> Federation[LocalFleet]:
    return tiny.federation(experiment, corpus, folder=folder)


def in_actors(
    experiment: Experiment, corpus: Corpus = CORPUS, plan: Plan = TWO, folder: Path | None = None
) -> Federation[RayFleet]:
    return start(experiment, corpus, partial(RayFleet, experiment, ship(experiment, corpus), plan=plan), folder)
