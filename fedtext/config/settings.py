"""The keys of an experiment, and properties that depend on several of them.

Corpora, models, methods, mechanisms and audits have keys of their own, in the folders of these names. Unknown keys are
refused.
"""

import re
from typing import Any

from pydantic import Field, field_validator

from fedtext.adversaries import Collusion
from fedtext.adversaries.backdoor import Backdoor
from fedtext.aggregations import Aggregation
from fedtext.config.fields import AuditField, CorpusField, MechanismField, MethodField, ModelField, PluginField
from fedtext.config.participation import Participation
from fedtext.config.sections import (
    Adversaries,
    Checkpoint,
    Evaluation,
    Privacy,
    Resources,
    Save,
    Server,
    Tracking,
    Wire,
)
from fedtext.config.selection import BEST_ROUND
from fedtext.config.server import MethodsOwn
from fedtext.config.tune import Tune
from fedtext.config.yaml_text import with_numbers
from fedtext.layout import TABLE
from fedtext.models.recurrent import Recurrent, RecurrentClassifier
from fedtext.schema import Strict
from fedtext.training.config import Engine, Training


class Settings(Strict):
    """The keys of an experiment, each valid by itself. An ``Experiment`` is one whose keys are also compatible."""

    name: str = Field(description="name of the experiment, in MLflow and in runs/")
    plugins: tuple[PluginField, ...] = Field(
        (), description="files and installed modules with parts of your own, which the other keys can name"
    )
    seed: int = Field(0, description="seed of all random draws")
    corpus: CorpusField = Field(description="where the texts come from, and how they are split into clients")
    model: ModelField = Field(RecurrentClassifier(), description="the network that is trained")
    method: MethodField = Field(description="how clients and server train it together")
    uplink: tuple[MechanismField, ...] = Field(
        (), description="mechanisms that are applied to an update before it is sent, in order"
    )
    wire: Wire = Wire()
    privacy: Privacy = Privacy()
    training: Training = Training()
    participation: Participation = Participation()
    server: Server = Server()
    adversaries: Adversaries | None = Field(None, description="clients that attack the training; null: none")
    evaluation: Evaluation = Evaluation()
    audits: tuple[AuditField, ...] = Field((), description="attacks on what clients send; they change no result")
    resources: Resources = Resources()
    checkpoint: Checkpoint = Checkpoint()
    save: Save = Save()
    tracking: Tracking = Tracking()
    storage: str = Field(
        "runs",
        description="folder for the state of runs, or a URI (s3://BUCKET/FOLDER) to which runs/ is copied",
    )
    seeds: int = Field(1, ge=1, description="of a sweep: number of repetitions of every case, with seed, seed + 1, ...")
    baselines: tuple[MethodField, ...] = Field((), description="of a sweep: methods that are run in addition")
    space: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="of a sweep: keys and their values, {method.lambda1: {grid: [0, 0.1]}}; also choice, uniform, "
        "loguniform, quniform, randint; several keys at once: a name, and named settings, "
        "{mechanism: {grid: {none: {uplink: []}, noisy: {server.noise.target_epsilon: 4}}}}",
    )
    tune: Tune = Tune()

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
            raise ValueError(
                f"{value!r} is to be the name of a folder: use up to 100 letters (a to z), digits, ., _ and -, with a "
                "letter or a digit first"
            )
        return value

    @field_validator("space")
    @classmethod
    def _has_numbers(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = with_numbers(value)
        return found

    @property
    def engine(self) -> Engine:
        """The engine that ``training.engine`` selects. Without recurrent layers it is ``reference`` or ``native``.

        ``auto`` is never ``native`` here: what depends on the machine is decided before a run starts
        (config/engine.py).
        """
        asked = self.training.engine
        if asked == "auto" and self.method.derivatives == 2:
            return "reference"
        if not isinstance(self.model, Recurrent):
            return "native" if asked == "native" and self.model.native else "reference"
        return "cells" if asked == "auto" else asked

    @property
    def aggregation(self) -> Aggregation:
        """The aggregation that ``server.aggregation`` selects."""
        asked = self.server.aggregation
        return self.method.aggregation if isinstance(asked, MethodsOwn) else asked

    @property
    def sums(self) -> bool:
        """Whether the server needs only sums of updates, which can be computed where clients are."""
        singly = self.server.buffer or (self.adversaries and isinstance(self.adversaries.attack, Collusion))
        return self.aggregation.sums and not singly

    @property
    def language(self) -> bool:
        """Whether the model predicts next words instead of classes."""
        return self.model.language

    @property
    def reads_table(self) -> bool:
        """Whether losses use rows of the embedding other than those of the batch's words."""
        return self.method.reads_table or self.language or self.training.dp_sgd is not None

    @property
    def whole_table(self) -> bool:
        """Whether local updates move rows of words that a client does not have: by its method, or by noise."""
        moved = self.method.whole_table and not self.model.fixes(TABLE)
        return moved or (self.training.dp_sgd is not None and self.shares_table)

    @property
    def shares_table(self) -> bool:
        """Whether clients send an embedding to the server."""
        return self.method.shares and not self.private(TABLE) and not self.model.fixes(TABLE)

    @property
    def complete(self) -> bool:
        """Whether the shared parameters are a whole model."""
        return self.method.complete and not self.model.parted

    def private(self, parameter: str) -> bool:
        """Whether a parameter of the network stays with each client: by the method, or by the model's adapter."""
        return self.method.private(parameter) or self.model.keeps(parameter)

    def fixed(self, parameter: str) -> bool:
        """Whether a parameter keeps its initial value, so that server and clients need not exchange it."""
        changes = self.private(parameter) or self.aggregation.changes(parameter)
        return self.model.fixes(parameter) and not changes

    def shared(self, parameter: str) -> bool:
        """Whether a parameter is the server's, from which clients receive it."""
        return not (self.private(parameter) or self.fixed(parameter))

    def shared_in(self, parameter: str, round_: int) -> bool:
        """Whether clients send a parameter in a round. The server alone changes those that are neither sent nor
        private."""
        apart = self.model.keeps(parameter) or self.model.fixes(parameter)
        return not apart and self.method.shared_in(parameter, round_)

    @property
    def digit_rows(self) -> str:
        """The method or key that treats embedding rows of words with a digit differently, for messages; or empty."""
        own = self.model.embedding.own
        if self.method.withholds:
            return f"method {self.method.name}"
        return "model.embedding.own: digits" if own and own.words == "digits" else ""

    @property
    def own_vocabularies(self) -> bool:
        """Whether each client has a vocabulary of its own, which only it knows."""
        asked = self.corpus.own_vocabularies
        if asked != "auto":
            return asked
        return self.method.own_vocabularies and self.corpus.counts_words and not self.corpus.has_features

    def evaluates(self, round_: int) -> bool:
        """Return whether models are evaluated after this round."""
        return round_ == self.training.rounds or round_ % self.evaluation.every == 0

    @property
    def own_rows(self) -> bool:
        """Whether only the embedding rows of a client's own words are sent."""
        if self.wire.rows == "auto":
            return (
                not self.language
                and not self.whole_table
                and not self.server.noise
                and not self.server.secure_aggregation
                and not any(mechanism.randomises for mechanism in self.uplink)
            )
        return self.wire.rows == "own"

    @property
    def evaluated_metrics(self) -> set[str]:
        """The names of the metrics on test texts and, if there are any, on validation texts (``..._val``).

        AUC needs two classes, which only the corpus knows. Ap is evaluated after the last round.
        """
        personalize = self.evaluation.personalize
        shared, tuned = "Ag" if self.complete else "Ap_0", list(personalize.variants()) if personalize else []
        if self.language:
            kinds = ("perplexity", "perplexity_p90", "nats_per_token", "bits_per_byte", "top1", "top3")
            found = {kind + ("" if name == "Ag" else f"_{name}") for name in (shared, *tuned) for kind in kinds}
        else:
            found = {shared, "AUC" + shared[2:], *tuned}
        asked = self.evaluation.union
        union = {"Global", "Global_geometric", "Local_p10"} if asked else set()
        union |= {name + BEST_ROUND for name in ("Local", "Global")} if asked and asked.best_round else set()
        found |= {"Local"} if union else set()
        attacked = self.adversaries and isinstance(self.adversaries.attack, Backdoor)
        union |= {"backdoor_success"} if attacked else set()
        return found | union | ({f"{name}_val" for name in found} if self.corpus.validation else set())
