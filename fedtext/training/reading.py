"""A client's texts as the experiment's model reads them, and in which order its method does."""

from collections.abc import Iterator

import numpy as np

from fedtext.corpora.types import ClientData
from fedtext.experiment import Experiment
from fedtext.methods.base import Phase
from fedtext.models.config import GRULanguageModel, RecurrentClassifier, TransformerClassifier, VectorClassifier
from fedtext.models.packing import Ints
from fedtext.seeding import generator
from fedtext.training.bags import common, first
from fedtext.training.batches import Texts, by_task, shuffled


def order_of(
    experiment: Experiment, texts: Texts, phase: Phase, round_: int, client: int, last: bool = True
) -> Iterator[Ints]:
    """Text numbers of each batch of a phase. The ``last`` phase of a turn draws as if there were no other."""
    seed = experiment.seed
    if experiment.method.separates:
        return by_task(texts.tasks_N, experiment.training.batch(len(texts)), phase.epochs, seed, round_, client)
    chosen_N = part(len(texts), phase, seed, client)
    size, purpose = experiment.training.batch(len(chosen_N)), "batches" if last else f"batches/{phase.name}"
    batches = shuffled(len(chosen_N), size, phase.epochs, seed, round_, client, purpose)
    return (chosen_N[batch] for batch in batches)


def part(texts: int, phase: Phase, seed: int, client: int) -> Ints:
    """The numbers of a phase's texts. A client with a single text has it in both halves."""
    if phase.texts == "all" or texts == 1:
        return np.arange(texts)
    drawn = generator(seed, "support and query", client=client).permutation(texts)
    support = texts // 2
    return np.sort(drawn[:support] if phase.texts == "support" else drawn[support:])


def texts_of(experiment: Experiment, data: ClientData, split: str) -> Texts:
    """One split of a client's."""
    model, tokens, rows = experiment.model, getattr(data, split), len(data.rows_R)
    if isinstance(model, RecurrentClassifier):
        return Texts(tokens, rows, experiment.corpus.max_length if model.pooling == "mean" else None, task=data.id)
    if isinstance(model, GRULanguageModel | TransformerClassifier):
        return Texts(tokens, rows, task=data.id)
    if not isinstance(model, VectorClassifier):
        return Texts(tokens, rows, as_sets=True, task=data.id, counting=model.values)
    if model.words != "all":
        tokens = common(tokens, rows, model.words) if model.order == "common" else first(tokens, model.words)
    if model.pooling == "flat":
        return Texts(tokens, rows, task=data.id)
    return Texts(tokens, rows, as_sets=True, task=data.id, counting="shares")
