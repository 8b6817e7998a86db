"""A client's texts as the experiment's model reads them, and in which order its method does."""

from collections.abc import Iterator

from fedtext.corpora.types import ClientData
from fedtext.experiment import Experiment
from fedtext.models.config import GRULanguageModel, RecurrentClassifier, TransformerClassifier, VectorClassifier
from fedtext.models.packing import Ints
from fedtext.training.bags import common, first
from fedtext.training.batches import Texts, by_task, shuffled


def order_of(experiment: Experiment, texts: Texts, epochs: int, round_: int, client: int) -> Iterator[Ints]:
    """Text numbers of each batch of a client's local epochs."""
    size, seed = experiment.training.batch(len(texts)), experiment.seed
    if experiment.method.separates:
        return by_task(texts.tasks_N, size, epochs, seed, round_, client)
    return shuffled(len(texts), size, epochs, seed, round_, client)


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
