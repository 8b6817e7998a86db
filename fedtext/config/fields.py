"""Types of an experiment's fields that hold one of several classes, chosen by name."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import BeforeValidator, InstanceOf, PlainSerializer

from fedtext.adversaries import ATTACKS, Attack
from fedtext.aggregations import AGGREGATIONS, Aggregation
from fedtext.audits import AUDITS, Audit
from fedtext.config.loading import Plugin, find_plugin
from fedtext.config.server import MethodsOwn, ServerAdam, ServerOptimizer, ServerSGD, ServerYogi
from fedtext.corpora import CORPORA, CorpusConfig
from fedtext.mechanisms import MECHANISMS, Mechanism
from fedtext.methods import METHODS, Method
from fedtext.models import MODELS
from fedtext.models.base import ModelConfig
from fedtext.schema import Extensible, choice, entry

# Plug-ins extend the dicts of these (``plugins.activate``).
CorpusField: TypeAlias = Annotated[CorpusConfig, Extensible(lambda: choice(*CORPORA.values()))]
ModelField: TypeAlias = Annotated[
    ModelConfig, Extensible(lambda: choice(*dict.fromkeys(MODELS.values()), default="bigru"))
]
MethodField: TypeAlias = Annotated[Method, Extensible(lambda: choice(*METHODS.values()))]
MechanismField: TypeAlias = Annotated[Mechanism, Extensible(lambda: entry(*MECHANISMS.values()))]
AuditField: TypeAlias = Annotated[Audit, Extensible(lambda: entry(*AUDITS.values()))]
AggregationField: TypeAlias = Annotated[
    MethodsOwn | Aggregation, Extensible(lambda: choice(MethodsOwn, *AGGREGATIONS.values(), tagged=True))
]
AttackField: TypeAlias = Annotated[Attack, Extensible(lambda: choice(*ATTACKS.values(), tagged=True))]
PluginField: TypeAlias = Annotated[
    InstanceOf[Plugin], BeforeValidator(find_plugin), PlainSerializer(lambda plugin: plugin.kept)
]
if TYPE_CHECKING:  # a type checker sees what they have in common; pydantic chooses among the classes by name
    ServerOptimizerField: TypeAlias = ServerOptimizer
else:
    ServerOptimizerField = choice(ServerSGD, ServerAdam, ServerYogi, default="sgd")
