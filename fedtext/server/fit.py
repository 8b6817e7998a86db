"""Whether a corpus is one for the model and the metrics of an experiment."""

from fedtext.config.experiment import Experiment
from fedtext.config.limits import PARAMETERS, excess
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.models.parts import Parts


def check_fit(experiment: Experiment, corpus: Corpus) -> None:
    """Raise UserError if the experiment's model does not fit the corpus."""
    model = experiment.model
    dim, rows = model.embedding.dim, len(corpus.vocabulary)
    if sentence := excess(PARAMETERS, dim * rows, "model.embedding.dim or corpus.vocabulary", least=True):
        raise UserError(sentence)
    Parts(model, corpus.classes)
    model.check(experiment.corpus.max_length)
    valued = not experiment.language and any(client.train.values_T is not None for client in corpus.clients)
    joined = model.joins and corpus.features
    if valued and not joined and not model.takes_values:
        raise UserError(
            f"model {model.name} uses words alone, and corpus {corpus.name} has features: use bag or logistic"
        )
    key = experiment.digit_rows
    if key and corpus.digits_V is not None and not corpus.digits_V.any():
        raise UserError(f"{key} is about words with a digit in them, and corpus {corpus.name} has none: leave it out")
    for metric in (experiment.evaluation.select, *experiment.evaluation.thresholds):
        check_classes("evaluation", metric, corpus)


def check_classes(key: str, metric: str, corpus: Corpus) -> None:
    """Check that a corpus can have a metric.

    Args:
        key: The key whose value is the metric, for the message.
        metric: The metric.
        corpus: The corpus.

    Raises:
        UserError: It cannot.
    """
    if metric.startswith("AUC") and corpus.classes != 2:
        raise UserError(f"{key}: {metric} needs 2 classes, and the corpus has {corpus.classes}: use Ag or Ap")
