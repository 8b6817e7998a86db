"""A client's texts as the experiment's model reads them."""

from fedtext.corpora.types import ClientData
from fedtext.experiment import Experiment
from fedtext.models.config import RecurrentClassifier, VectorClassifier
from fedtext.training.bags import common, first
from fedtext.training.batches import Texts


def texts_of(experiment: Experiment, data: ClientData, split: str) -> Texts:
    """One split of a client's."""
    model, tokens, rows = experiment.model, getattr(data, split), len(data.rows_R)
    if isinstance(model, RecurrentClassifier):
        return Texts(tokens, rows, experiment.corpus.max_length if model.pooling == "mean" else None, task=data.id)
    if not isinstance(model, VectorClassifier):
        return Texts(tokens, rows, as_sets=True, task=data.id, counting=model.values)
    if model.words != "all":
        tokens = common(tokens, rows, model.words) if model.order == "common" else first(tokens, model.words)
    if model.pooling == "flat":
        return Texts(tokens, rows, task=data.id)
    return Texts(tokens, rows, as_sets=True, task=data.id, counting="shares")
