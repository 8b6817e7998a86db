"""The parameters an experiment starts from."""

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.corpora.types import Corpus
from fedtext.experiment import Experiment
from fedtext.models.config import TABLE, RandomInit
from fedtext.models.recurrent import Parts
from fedtext.seeding import generator, torch_scope


def build_network(experiment: Experiment, classes: int) -> torch.nn.Module:
    """The method's network, drawn from the experiment's seed; its embedding table has one placeholder row."""
    parts = Parts(experiment.model, classes)
    with torch_scope(experiment.seed, "init"):
        return experiment.method.network(parts)


def initial(experiment: Experiment, corpus: Corpus) -> tuple[dict[str, NDArray[np.float32]], ...]:
    """(shared, private) parameters before the first round, the same for every client; tables have V rows."""
    network = build_network(experiment, corpus.classes)
    tensors = {name: parameter.detach().numpy() for name, parameter in network.named_parameters()}
    tensors[TABLE] = _table(experiment, corpus)
    private = {name: tensor for name, tensor in tensors.items() if experiment.method.private(name)}
    return {name: tensor for name, tensor in tensors.items() if name not in private}, private


def _table(experiment: Experiment, corpus: Corpus) -> NDArray[np.float32]:
    if corpus.table_VD is not None:
        return corpus.table_VD
    embedding = experiment.model.embedding
    assert isinstance(embedding.init, RandomInit), "other initialisations come with the corpus"
    rng = generator(experiment.seed, "embedding")
    return np.float32(embedding.init.std) * rng.standard_normal(
        (len(corpus.vocabulary), embedding.dim), dtype=np.float32
    )
