"""A worker that hosts the clients of a small corpus."""

import numpy as np

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.worker import Worker
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.layout import Layout
from fedtext.parameters import initial
from tests import tiny

CORPUS = tiny.corpus(clients=3)
UNION = {"personalize": None, "union": {}}


def hosting(experiment: Experiment, corpus: Corpus = CORPUS) -> tuple[Worker, np.ndarray]:
    shared, private = initial(experiment, corpus)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    return LocalFleet(experiment, corpus, private).worker, flat
