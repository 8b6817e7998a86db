"""The schema of an experiment: the vocabulary of the whole project on one page.

Corpora, models, methods, mechanisms and audits bring their own keys, in the folders of these names; everything else a
person can write stands here. Every key is read somewhere, and an unknown one is refused.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from fedtext.audits import AUDITS, Audit
from fedtext.corpora import CORPORA, CorpusConfig
from fedtext.mechanisms import MECHANISMS, Mechanism
from fedtext.methods import METHODS, Method
from fedtext.models.config import (
    KERNEL_WIDTH,
    TABLE,
    BagClassifier,
    Classifier,
    LogisticClassifier,
    RecurrentClassifier,
    VectorClassifier,
)
from fedtext.schema import Strict, choice, entry
from fedtext.server import ServerAdam, ServerOptimizer, ServerSGD, ServerYogi
from fedtext.server_noise import Noise, flaw
from fedtext.training.config import Steps, Training

if TYPE_CHECKING:  # a type checker sees what they have in common; pydantic chooses among the classes by name
    CorpusField: TypeAlias = CorpusConfig
    ModelField: TypeAlias = Classifier
    MethodField: TypeAlias = Method
    MechanismField: TypeAlias = Mechanism
    AuditField: TypeAlias = Audit
    ServerOptimizerField: TypeAlias = ServerOptimizer
else:
    CorpusField = choice(*CORPORA.values())
    ModelField = choice(RecurrentClassifier, BagClassifier, LogisticClassifier, VectorClassifier, default="bigru")
    MethodField = choice(*METHODS.values())
    MechanismField = entry(*MECHANISMS.values())
    AuditField = entry(*AUDITS.values())
    ServerOptimizerField = choice(ServerSGD, ServerAdam, ServerYogi, default="sgd")


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

    weights: Literal["samples", "uniform"] = Field("samples", description="n_k / sum n_j of the participants, or equal")
    absent_rows: Literal["unchanged", "holders_only"] = Field(
        "unchanged", description="a row a client does not hold counts as an unchanged row, or not at all"
    )
    optimizer: ServerOptimizerField = ServerSGD()
    noise: Noise | None = Field(None, description="central differential privacy; needs clip at the end of uplink")


class Wire(Strict):
    """Which embedding rows travel: those of the client's own vocabulary (which reveals it), or all."""

    rows: Literal["auto", "own", "all"] = Field("auto", description="auto: all where noise is added, else own")


class Variation(Strict):
    """Another way of fine-tuning: what is left out is as in the first one."""

    lr_multiplier: float | None = Field(None, gt=0)
    inference: Literal["both", "shared", "private"] | None = None


class Personalize(Strict):
    """Ap (KTEPS paper, equation 16): after the last aggregation, fine-tune ``steps`` steps, read every ``every``."""

    steps: int = Field(25, ge=1)
    every: int = Field(1, ge=1)
    lr_multiplier: float = Field(0.01, gt=0)
    inference: Literal["both", "shared", "private"] = "both"
    also: tuple[Variation, ...] = Field(
        (), description="other readings from the same state: Ap_lr_multiplier_1, Ap_inference_shared, ..."
    )

    def readings(self) -> dict[str, "Personalize"]:
        """Each way of fine-tuning by the name of what is read."""
        found = {"Ap": self}
        for variation in self.also:
            changes = variation.model_dump(exclude_none=True)
            words = [
                f"_{key}_{value:g}" if isinstance(value, float) else f"_{key}_{value}" for key, value in changes.items()
            ]
            found["Ap" + "".join(words)] = self.model_copy(update=changes)
        return found


class Evaluation(Strict):
    """When accuracy is read, and how the personalised one is."""

    every: int = Field(1, ge=1, description="rounds between two readings of Ag; the last round is always read")
    personalize: Personalize | None = Personalize()


class Resources(Strict):
    """What a trial takes from the cluster. The result does not depend on it."""

    clients_per_actor: PositiveInt | Literal["auto"] = Field(
        "auto", description="how many actors there are: clients / this many. Who is where goes by the load"
    )
    cpus_per_actor: float = Field(1.0, ge=0)
    gpus_per_actor: float | Literal["auto"] = Field(
        "auto", description="1/n or whole; auto: a share for each client, or stack of clients"
    )
    round_timeout_s: float = Field(3600.0, gt=0, description="a round that takes longer fails with a message")
    max_restarts: int = Field(3, ge=0, description="times a trial is restored after a process of it died")


class Checkpoint(Strict):
    """State is written at round boundaries, server and clients of one round together."""

    every: int = Field(1, ge=1)


class Tracking(Strict):
    """Where MLflow is. Null: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db in the working folder."""

    uri: str | None = None
    experiment: str | None = Field(None, description="null: the experiment's name")


class Tune(Strict):
    """How the space is searched."""

    metric: Literal["Ag_val", "Ap_val", "AUC_val", "Ag", "Ap", "AUC", "loss"] = Field(
        "Ap_val", description="what trials are sorted by"
    )
    mode: Literal["auto", "max", "min"] = Field("auto", description="auto: the smallest loss, the largest accuracy")
    samples: int = Field(1, ge=1, description="draws of the space's random dimensions for each point of its grid")
    scheduler: Literal["none", "asha"] = "none"
    grace_rounds: int = Field(1, ge=1, description="asha: rounds before a trial may be stopped")
    concurrent: PositiveInt | Literal["auto"] = Field("auto", description="trials at a time; auto: as many as fit")

    @property
    def direction(self) -> Literal["max", "min"]:
        """What is better: more or less of the metric."""
        return self.mode if self.mode != "auto" else "min" if self.metric == "loss" else "max"


class Experiment(Strict):
    """One experiment file. With a ``space`` it can be swept; without, it is one run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seed: int = 0
    corpus: CorpusField
    model: ModelField = RecurrentClassifier()
    method: MethodField
    uplink: tuple[MechanismField, ...] = ()
    wire: Wire = Wire()
    training: Training = Training()
    participation: Participation = Participation()
    server: Server = Server()
    evaluation: Evaluation = Evaluation()
    audits: tuple[AuditField, ...] = ()
    resources: Resources = Resources()
    checkpoint: Checkpoint = Checkpoint()
    tracking: Tracking = Tracking()
    storage: str = Field("runs", description="folder for the state of runs")
    seeds: int = Field(1, ge=1, description="of a sweep: every case is run with seed, seed + 1, ... so many")
    baselines: tuple[MethodField, ...] = ()
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    tune: Tune = Tune()

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        personalize = self.evaluation.personalize
        if personalize and personalize.steps % personalize.every:
            raise ValueError(
                f"evaluation.personalize.steps ({personalize.steps}) is no multiple of every ({personalize.every}): Ap "
                "is read after every so many steps, the last time after all of them"
            )
        apart = self.participation.fraction < 1 or self.participation.dropout > 0
        if self.method.pooled and (self.uplink or self.audits or apart):
            raise ValueError(
                f"method {self.method.name} has all data in one place, so nothing is sent and nobody is away: leave "
                "out uplink, audits and participation"
            )
        for place, mechanism in enumerate(self.uplink):
            fault = mechanism.misplaced(self.uplink[:place]) or mechanism.misfit(self.model.embedding.dim)
            if fault:
                raise ValueError(f"uplink: {fault}")
        if self.method.separates and isinstance(self.training.batch_size, Steps):
            raise ValueError(
                f"training.batch_size: method {self.method.name} makes batches of one client's texts each, which steps "
                "does not count: write a number"
            )
        if self.server.noise and (reason := flaw(self)):
            raise ValueError(f"server.noise: {reason}")
        if reason := self.method.misfit(self):
            raise ValueError(reason)
        noisy = self.server.noise or any(mechanism.randomises for mechanism in self.uplink)
        if noisy and self.shares_table and self.training.optimizer.embedding_lr == 0:
            raise ValueError(
                "training.optimizer.embedding_lr: 0 does not keep a shared embedding as it is, since noise moves it "
                "every round: leave out embedding_lr, or the noise in uplink and server"
            )
        audits = [audit.name for audit in self.audits]
        if len(set(audits)) < len(audits):
            raise ValueError("audits: one of them stands there twice, and their figures would have the same names")
        parts: list[Mechanism | Audit] = [*self.uplink, *self.audits]
        for part in parts:
            if part.needs_table and not self.shares_table:
                raise ValueError(
                    f"{part.name} is about the embedding, and method {self.method.name} shares none: leave it out"
                )
        engine = self.training.engine
        if engine in ("cells", "triton") and not isinstance(self.model, RecurrentClassifier):
            raise ValueError(
                f"training.engine: model {self.model.name} has no recurrent layers for {engine}; leave engine at auto"
            )
        if engine == "triton" and isinstance(self.model, RecurrentClassifier) and self.model.hidden > KERNEL_WIDTH:
            raise ValueError(
                f"training.engine: triton is for up to {KERNEL_WIDTH} hidden units; with {self.model.hidden} the "
                "products of one step are large enough by themselves: use engine: cells"
            )
        if self.training.stack not in ("auto", 1):
            if not isinstance(self.model, RecurrentClassifier):
                raise ValueError(
                    f"training.stack: clients with model {self.model.name} are trained one by one, since a table fills "
                    "the caches by itself; leave stack at auto or 1"
                )
            if self.engine == "reference":
                raise ValueError("training.stack: the engine reference trains clients one by one; use engine: cells")
            if self.method.reads_table:
                raise ValueError(
                    f"training.stack: the loss of {self.method.name} reads the whole embedding table, and its rows "
                    "differ from client to client; leave stack at auto or 1"
                )
        if self.server.absent_rows == "holders_only" and not self.own_rows:
            raise ValueError("server.absent_rows: holders_only needs wire.rows: own, so that the server knows holders")
        return self

    @model_validator(mode="after")
    def _readable(self) -> "Experiment":
        """Whether the model can read what stands for the texts."""
        corpus, init = self.corpus, self.model.embedding.init
        if not corpus.counts_words and init.name != "random":
            raise ValueError(
                f"model.embedding.init: {init.name} vectors are of words, and corpus.text hashes these: use random, or "
                "corpus.text=words"
            )
        if isinstance(self.model, RecurrentClassifier):
            if corpus.max_length is None:
                raise ValueError(
                    f"corpus.max_length: model {self.model.name} reads a text word by word: set how many words (the "
                    "RR-LDP paper: 300)"
                )
            if corpus.has_features:
                raise ValueError(
                    f"corpus.features: model {self.model.name} reads words in their order and no numbers beside them: "
                    "set it to [], or use model bag or vectors"
                )
        return self

    @property
    def engine(self) -> Literal["reference", "cells", "triton"]:
        """The engine that ``training.engine`` comes down to. Without recurrent layers there is nothing for ``cells`` to
        compute."""
        if not isinstance(self.model, RecurrentClassifier):
            return "reference"
        return "cells" if self.training.engine == "auto" else self.training.engine

    @property
    def shares_table(self) -> bool:
        """Whether clients send an embedding to the server."""
        return self.method.shares and not self.method.private(TABLE)

    def evaluates(self, round_: int) -> bool:
        """Whether accuracies are read after this round."""
        return round_ == self.training.rounds or round_ % self.evaluation.every == 0

    @property
    def own_rows(self) -> bool:
        """Whether only the embedding rows of a client's own vocabulary travel."""
        if self.wire.rows == "auto":
            return not self.server.noise and not any(mechanism.randomises for mechanism in self.uplink)
        return self.wire.rows == "own"
