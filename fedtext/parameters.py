"""Named tensors laid end to end in one flat float32 buffer: what is broadcast, checkpointed and aggregated.

Legend: V vocabulary, R rows a client holds, D embedding.
"""

from collections.abc import Mapping
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.corpora.types import Corpus
from fedtext.experiment import Experiment
from fedtext.models.config import RandomInit
from fedtext.models.recurrent import TABLE, Encoder, Parts
from fedtext.seeding import generator, torch_scope

ALIGN = 16  # floats: every tensor starts on a cache line, wherever the ones before it end
Shapes = Mapping[str, tuple[int, ...]]


class Layout:
    """Where each tensor of ``shapes`` lies in a flat buffer of ``size`` floats."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = dict(shapes)
        self.starts: dict[str, int] = {}
        self.size = 0
        for name, shape in self.shapes.items():
            self.starts[name] = self.size
            self.size += -(-prod(shape) // ALIGN) * ALIGN

    def views(self, flat: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """The named tensors as views into ``flat``."""
        return {
            name: flat[self.starts[name] : self.starts[name] + prod(shape)].reshape(shape)
            for name, shape in self.shapes.items()
        }

    def pack(self, tensors: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """A new flat buffer that holds copies of ``tensors``."""
        flat = np.zeros(self.size, np.float32)
        for name, view in self.views(flat).items():
            view[...] = tensors[name]
        return flat

    def with_rows(self, rows: int) -> "Layout":
        """The same tensors with ``rows`` rows in the embedding table."""
        return Layout({n: (rows, *s[1:]) if n == TABLE else s for n, s in self.shapes.items()})


def build_network(experiment: Experiment, classes: int) -> torch.nn.Module:
    """The method's network, drawn from the experiment's seed; its embedding table has one placeholder row."""
    parts = Parts(experiment.model, classes)
    with torch_scope(experiment.seed, "init"):
        network = experiment.method.network(parts)
    for module in network.modules():
        if isinstance(module, Encoder):
            module.engine = experiment.engine
    return network


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
