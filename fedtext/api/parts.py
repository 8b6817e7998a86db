"""The parts of experiments: methods, mechanisms and others by their names in an experiment file.

They include parts of plug-ins: of installed packages, and of the experiment that was loaded last.
"""

from collections.abc import Mapping
from typing import TypeVar

from fedtext.adversaries import ATTACKS, Attack
from fedtext.aggregations import AGGREGATIONS, Aggregation
from fedtext.audits import AUDITS, Audit
from fedtext.config import plugins
from fedtext.config.experiment import use
from fedtext.corpora import CORPORA, CorpusConfig
from fedtext.mechanisms import MECHANISMS, Mechanism
from fedtext.methods import METHODS, Method
from fedtext.models import MODELS
from fedtext.schema import Strict

Part = TypeVar("Part")


def _known(classes: Mapping[str, Part]) -> dict[str, Part]:
    use(plugins.active())
    return dict(classes)


def list_methods() -> dict[str, type[Method]]:
    """Return the federated methods by name. Their docstrings describe them, and their fields are their keys."""
    return _known(METHODS)


def list_mechanisms() -> dict[str, type[Mechanism]]:
    """Return the mechanisms of ``uplink`` by name."""
    return _known(MECHANISMS)


def list_aggregations() -> dict[str, type[Aggregation]]:
    """Return the aggregations of ``server.aggregation`` by name."""
    return _known(AGGREGATIONS)


def list_corpora() -> dict[str, type[CorpusConfig]]:
    """Return the corpora by name."""
    return _known(CORPORA)


def list_models() -> dict[str, type[Strict]]:
    """Return the models by name; one class can have several."""
    return _known(MODELS)


def list_attacks() -> dict[str, type[Attack]]:
    """Return the attacks of ``adversaries.attack`` by name."""
    return _known(ATTACKS)


def list_audits() -> dict[str, type[Audit]]:
    """Return the audits by name."""
    return _known(AUDITS)
