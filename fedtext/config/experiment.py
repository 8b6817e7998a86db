"""The schema of an experiment: the vocabulary of the whole project on one page.

Corpora, models, methods, mechanisms and audits bring their own keys, in the folders of these names; everything else a
person can write stands here. Every key is read somewhere, and an unknown one is refused.
"""

import math
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from fedtext.aggregations import Aggregation
from fedtext.config import plugins
from fedtext.config.compatibility import problems
from fedtext.config.fields import (
    AggregationField,
    AuditField,
    CorpusField,
    MechanismField,
    MethodField,
    ModelField,
    PluginField,
    ServerOptimizerField,
)
from fedtext.config.plugins import Plugin
from fedtext.config.selection import Sorting, Validated, threshold
from fedtext.config.server import MethodsOwn, Noise, ServerSGD
from fedtext.layout import TABLE
from fedtext.metrics import smaller_is_better
from fedtext.models.recurrent import Recurrent, RecurrentClassifier
from fedtext.schema import Strict
from fedtext.training.config import Training


class Participation(Strict):
    """Who takes part in a round."""

    fraction: float = Field(1.0, gt=0, le=1, description="share of the clients sampled each round")
    sampling: Literal["fixed", "poisson"] = Field(
        "fixed", description="so many clients each round, or each client by itself with this chance"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="chance that a sampled client is not available")
    on_client_error: Literal["fail", "skip"] = Field("fail", description="a NaN loss or an exception in a client")


class Server(Strict):
    """How the server combines the clients' updates."""

    aggregation: AggregationField = Field(MethodsOwn(), description="what the server makes of the clients' updates")
    weights: Literal["samples", "uniform"] = Field(
        "samples",
        description="n_k / sum n_j of the participants, or equal; of aggregations that are a mean, and of "
        "geometric_median",
    )
    absent_rows: Literal["unchanged", "holders_only"] = Field(
        "unchanged",
        description="of aggregations that are a mean: a row a client does not hold counts as an unchanged row, or not "
        "at all",
    )
    optimizer: ServerOptimizerField = Field(
        ServerSGD(), description="what the server makes of the aggregated update, taken for a gradient"
    )
    noise: Noise | None = Field(None, description="central differential privacy; needs clip at the end of uplink")


class Privacy(Strict):
    """Where the random draws come from that hide something (fedtext/state/noise_key.py)."""

    noise: Literal["reproducible", "secret"] = Field(
        "reproducible",
        description="reproducible: drawn from the seed and the experiment, so that the same experiment draws the same "
        "noise again; secret: drawn from the operating system's entropy, kept with the run's state",
    )


class Wire(Strict):
    """Which embedding rows travel: those of the client's own vocabulary (which reveals it), or all."""

    rows: Literal["auto", "own", "all"] = Field("auto", description="auto: all where noise is added, else own")


class Variation(Strict):
    """Another way of fine-tuning: what is left out is as in the first one."""

    lr_multiplier: float | None = Field(None, gt=0, description="in the place of that of evaluation.personalize")
    inference: Literal["both", "shared", "private"] | None = Field(None, description="likewise")


class Personalize(Strict):
    """How each client's model is personalised, and Ap measured (KTEPS paper, equation 16).

    Ap (KTEPS paper, equation 16): after the last aggregation each client fine-tunes a copy of its model for Z =
    ``steps`` steps and evaluates it after every z = ``every`` of them. Ap is the mean of these n_Z = steps / every
    accuracies; the accuracy before the first step is not among them."""

    steps: int = Field(25, ge=1, description="Z of equation 16: steps of fine-tuning in all, a multiple of every")
    every: int = Field(
        1, ge=1, description="z of equation 16: steps between two evaluations; Ap is the mean of n_Z = steps / every"
    )
    lr_multiplier: float = Field(0.01, gt=0, description="the paper's mu: times training.optimizer.lr")
    inference: Literal["both", "shared", "private"] = Field(
        "both", description="of a method with two branches: which of them predict, both averaged or one alone"
    )
    also: tuple[Variation, ...] = Field(
        (), description="other readings from the same state: Ap_lr_multiplier_1, Ap_inference_shared, ..."
    )

    def variants(self) -> dict[str, "Personalize"]:
        """Each way of fine-tuning by the name of what is read."""
        found = {"Ap": self}
        for variation in self.also:
            changes = variation.model_dump(exclude_none=True)
            words = [
                f"_{key}_{value:g}" if isinstance(value, float) else f"_{key}_{value}" for key, value in changes.items()
            ]
            found["Ap" + "".join(words)] = self.model_copy(update=changes)
        return found


class Union(Strict):
    """Everybody's test texts, or so many of them, drawn from the seed."""

    texts: PositiveInt | Literal["all"] = Field("all", description="how many of the clients' test texts")


class Evaluation(Strict):
    """When accuracy, or a language model's perplexity, is read, of which model, and how the personalised one is."""

    every: int = Field(1, ge=1, description="rounds between two readings of Ag; the last round is always read")
    personalize: Personalize | None = Field(Personalize(), description="how Ap is measured; null: not at all")
    union: Union | None = Field(
        None,
        description="after the last round: Local, of each client's own model on its own test texts, and Global, of the "
        "same on everybody's, with Local_p10 and Global_geometric",
    )
    select: Literal["last"] | Validated = Field(
        "last",
        description="whose model counts in the end: the last round's, or that of the round with the best value of "
        "this; test texts are then read once, by that model, and the last row's figures are all its own",
    )
    thresholds: dict[Validated, tuple[float, ...]] = Field(
        default_factory=dict, description="values whose first rounds are told: rounds_to_..., bytes_to_..."
    )

    @model_validator(mode="after")
    def _told_apart(self) -> "Evaluation":
        for metric, values in self.thresholds.items():
            if not all(map(math.isfinite, values)) or len({threshold(metric, value) for value in values}) < len(values):
                raise ValueError(f"thresholds.{metric}: they must be different numbers")
        return self


class Resources(Strict):
    """What a trial takes from the cluster. The result does not depend on it."""

    clients_per_actor: PositiveInt | Literal["auto"] = Field(
        "auto", description="how many actors there are: clients / this many. Who is where goes by the load"
    )
    cpus_per_actor: float = Field(1.0, ge=0, description="logical CPUs that an actor reserves")
    gpus_per_actor: float | Literal["auto"] = Field(
        "auto", description="1/n or whole; auto: a share for each client, or stack of clients"
    )
    round_timeout_s: float = Field(3600.0, gt=0, description="a round that takes longer fails with a message")
    max_restarts: int = Field(3, ge=0, description="times a trial is restored after a process of it died")


class Checkpoint(Strict):
    """State is written at round boundaries, server and clients of one round together."""

    every: int = Field(1, ge=1, description="rounds between two checkpoints; the last round is always saved")


class Save(Strict):
    """What a run leaves of the model it trained, in a folder that ``fedtext.Model.load`` reads."""

    model: Literal["shared", "clients", "none"] = Field(
        "shared",
        description="shared: the shared parameters and the vocabulary; clients: also what each client keeps to itself, "
        "which no guarantee covers; none: no folder",
    )


class Tracking(Strict):
    """Where MLflow is. Null: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db in the working folder."""

    uri: str | None = Field(None, description="MLflow's address; null: see above")
    experiment: str | None = Field(None, description="null: the experiment's name")
    model: bool = Field(
        True,
        description="whether the model folder of a finished run is kept among its artifacts too; with save.model: "
        "clients it never is",
    )


class Tune(Strict):
    """How the space is searched."""

    metric: Sorting = Field("Ap_val", description="what trials are sorted by")
    mode: Literal["auto", "max", "min"] = Field(
        "auto", description="auto: the smallest loss or perplexity, the largest accuracy"
    )
    samples: int = Field(1, ge=1, description="draws of the space's random dimensions for each point of its grid")
    scheduler: Literal["none", "asha"] = Field(
        "none", description="asha: stop the worse trials early (asynchronous successive halving)"
    )
    grace_rounds: int = Field(1, ge=1, description="asha: rounds before a trial may be stopped")
    concurrent: PositiveInt | Literal["auto"] = Field("auto", description="trials at a time; auto: as many as fit")

    @property
    def direction(self) -> Literal["max", "min"]:
        """What is better: more or less of the metric."""
        return self.mode if self.mode != "auto" else "min" if smaller_is_better(self.metric) else "max"


class Experiment(Strict):
    """One experiment file. With a ``space`` it can be swept; without, it is one run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="of the experiment, in MLflow and in runs/")
    plugins: tuple[PluginField, ...] = Field(
        (), description="files and installed modules with parts of your own, which the other keys can name"
    )
    seed: int = Field(0, description="of every random draw")
    corpus: CorpusField = Field(description="where the texts come from, and how they are split into clients")
    model: ModelField = Field(RecurrentClassifier(), description="the network that is trained")
    method: MethodField = Field(description="how clients and server train it together")
    uplink: tuple[MechanismField, ...] = Field((), description="what is done to an update before it is sent, in order")
    wire: Wire = Wire()
    privacy: Privacy = Privacy()
    training: Training = Training()
    participation: Participation = Participation()
    server: Server = Server()
    evaluation: Evaluation = Evaluation()
    audits: tuple[AuditField, ...] = Field((), description="attacks on what clients send; they change no result")
    resources: Resources = Resources()
    checkpoint: Checkpoint = Checkpoint()
    save: Save = Save()
    tracking: Tracking = Tracking()
    storage: str = Field("runs", description="folder for the state of runs")
    seeds: int = Field(1, ge=1, description="of a sweep: every case is run with seed, seed + 1, ... so many")
    baselines: tuple[MethodField, ...] = Field((), description="of a sweep: methods that are run beside its cases")
    space: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="of a sweep: keys and their values, {method.lambda1: {grid: [0, 0.1]}}; also choice, uniform, "
        "loguniform, quniform, randint",
    )
    tune: Tune = Tune()

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        for problem in problems(self):
            raise ValueError(problem)
        return self

    @property
    def engine(self) -> Literal["reference", "cells", "triton"]:
        """The engine that ``training.engine`` comes down to. Without recurrent layers there is nothing for ``cells`` to
        compute."""
        if not isinstance(self.model, Recurrent):
            return "reference"
        return "cells" if self.training.engine == "auto" else self.training.engine

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation that ``server.aggregation`` comes down to."""
        asked = self.server.aggregation
        return self.method.aggregation if isinstance(asked, MethodsOwn) else asked

    @property
    def language(self) -> bool:
        """Whether next words are predicted, and no classes of texts."""
        return self.model.language

    @property
    def reads_table(self) -> bool:
        """Whether losses read the embedding beyond the rows of a batch's words."""
        return self.method.reads_table or self.language

    @property
    def shares_table(self) -> bool:
        """Whether clients send an embedding to the server."""
        return self.method.shares and not self.method.private(TABLE)

    @property
    def own_vocabularies(self) -> bool:
        """Whether each client has a vocabulary of its own, which no one else knows."""
        asked = self.corpus.own_vocabularies
        if asked != "auto":
            return asked
        return self.method.own_vocabularies and self.corpus.counts_words and not self.corpus.has_features

    @property
    def all_plugins(self) -> tuple[Plugin, ...]:
        """The plug-ins that it lists, and those of installed packages that define a part of it."""
        parts = (self.corpus, self.model, self.method, *self.uplink, *self.audits, *self.baselines, self.aggregation)
        used = (plugins.defining(type(part)) for part in parts)
        found = {plugin.module: plugin for plugin in used if plugin}  # a text can have been loaded by another name
        return tuple((found | {plugin.module: plugin for plugin in self.plugins}).values())

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle brings the plug-ins, which are loaded before anything that needs them."""
        return _unpickled, (type(self), self.all_plugins), self.__getstate__()

    def evaluates(self, round_: int) -> bool:
        """Whether accuracies are read after this round."""
        return round_ == self.training.rounds or round_ % self.evaluation.every == 0

    @property
    def own_rows(self) -> bool:
        """Whether only the embedding rows of a client's own vocabulary travel."""
        if self.wire.rows == "auto":
            return (
                not self.language
                and not self.method.whole_table
                and not self.server.noise
                and not any(mechanism.randomises for mechanism in self.uplink)
            )
        return self.wire.rows == "own"


def _unpickled(cls: type[Experiment], needed: Iterable[Plugin]) -> Experiment:
    for plugin in needed:
        plugins.load(plugin)
    return cls.__new__(cls)


def use(chosen: Iterable[Plugin]) -> None:
    """Let experiments that are made from here on have the parts of these plug-ins, and of installed ones.

    Raises:
        UserError: If a plug-in cannot be loaded, or a name is taken.
    """
    if plugins.activate(chosen):
        for changed in (Server, Experiment):
            changed.model_rebuild(force=True)
