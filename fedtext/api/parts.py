"""What an experiment can be made of, by the names that a file has for it."""

from fedtext.aggregations import AGGREGATIONS, Aggregation
from fedtext.audits import AUDITS, Audit
from fedtext.corpora import CORPORA, CorpusConfig
from fedtext.mechanisms import MECHANISMS, Mechanism
from fedtext.methods import METHODS, Method
from fedtext.models import MODELS
from fedtext.schema import Strict


def list_methods() -> dict[str, type[Method]]:
    """Return the federated methods by name. Their docstrings say what they do, their fields which keys they have."""
    return dict(METHODS)


def list_mechanisms() -> dict[str, type[Mechanism]]:
    """Return the mechanisms of ``uplink`` by name."""
    return dict(MECHANISMS)


def list_aggregations() -> dict[str, type[Aggregation]]:
    """Return the aggregations of ``server.aggregation`` by name."""
    return dict(AGGREGATIONS)


def list_corpora() -> dict[str, type[CorpusConfig]]:
    """Return the corpora by name."""
    return dict(CORPORA)


def list_models() -> dict[str, type[Strict]]:
    """Return the models by name; one class can have several."""
    return dict(MODELS)


def list_audits() -> dict[str, type[Audit]]:
    """Return the audits by name."""
    return dict(AUDITS)
