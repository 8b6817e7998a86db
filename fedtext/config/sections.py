"""The sections of an experiment besides its parts: server, evaluation, resources and others."""

import math
from typing import Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from fedtext.config.canaries import Canaries
from fedtext.config.fields import AggregationField, AttackField, ServerOptimizerField
from fedtext.config.noise import Noise
from fedtext.config.secure import SecureAggregation
from fedtext.config.selection import SHARES, Validated, decimal, threshold
from fedtext.config.server import Buffer, MethodsOwn, ServerSGD
from fedtext.evaluation.continuations import Generate
from fedtext.runtime.secrets import has_secret, redacted
from fedtext.schema import Strict


class Server(Strict):
    """How the server combines the clients' updates."""

    aggregation: AggregationField = Field(MethodsOwn(), description="how the clients' updates are combined")
    weights: Literal["samples", "uniform"] = Field(
        "samples",
        description="weights of clients; samples: n_k / sum n_j of the participants; uniform: equal; for aggregations "
        "that are a mean, geometric_median and centered_clipping",
    )
    absent_rows: Literal["unchanged", "holders_only"] = Field(
        "unchanged",
        description="embedding rows that a client does not have; unchanged: they count as unchanged; holders_only: a "
        "row is averaged over the clients that have it; for aggregations that are a mean",
    )
    optimizer: ServerOptimizerField = Field(
        ServerSGD(), description="the server's optimizer, for which the aggregated update is a negative gradient"
    )
    buffer: Buffer | None = Field(
        None,
        description="clients train asynchronously, and the server makes a step after a number of updates; null: rounds",
    )
    noise: Noise | None = Field(None, description="central differential privacy; needs clip at the end of uplink")
    secure_aggregation: SecureAggregation | None = Field(
        None,
        description="the server learns the sum of the updates, and no single one; for aggregations that are a mean",
    )


class Adversaries(Strict):
    """Clients that attack the training, to measure what it withstands."""

    fraction: float = Field(
        ge=0,
        lt=1,
        description="share of all clients that attack, drawn from the seed: those of a smaller share are among them",
    )
    attack: AttackField = Field(description="what they do")


class Privacy(Strict):
    """The key of random draws that protect data (fedtext/state/noise_key.py), and what is measured of it."""

    noise: Literal["reproducible", "secret"] = Field(
        "reproducible",
        description="reproducible: drawn from the seed and the experiment, so that the same experiment draws the same "
        "noise again; secret: drawn from the operating system's entropy, kept with the run's state",
    )
    canaries: Canaries | None = Field(
        None, description="clients by which a lower bound on epsilon is measured in the run; {}: 1000; null: none"
    )


class Wire(Strict):
    """The messages between clients and server."""

    rows: Literal["auto", "own", "all"] = Field(
        "auto",
        description="embedding rows that are sent; own: those of the client's own words, which discloses them; auto: "
        "all if noise is added, else own",
    )
    shuffle: bool = Field(
        False,
        description="a trusted shuffler passes on the bits of each coordinate in random order, so that the server "
        "learns how many are set; it changes no result",
    )


class Variation(Strict):
    """Another way of fine-tuning. A key that is left out has the value of ``evaluation.personalize``."""

    lr_multiplier: float | None = Field(None, gt=0, description="replaces evaluation.personalize.lr_multiplier")
    inference: Literal["both", "shared", "private"] | None = Field(
        None, description="replaces evaluation.personalize.inference"
    )


class Personalize(Strict):
    """How each client's model is personalised, and Ap measured (KTEPS paper, equation 16).

    After the last aggregation each client fine-tunes a copy of its model for Z = ``steps`` steps, and evaluates it
    after every z = ``every`` steps. Ap is the mean of these n_Z = steps / every accuracies, without the accuracy before
    the first step.
    """

    steps: int = Field(25, ge=1, description="Z of equation 16: number of steps of fine-tuning, a multiple of every")
    every: int = Field(
        1, ge=1, description="z of equation 16: steps between two evaluations; Ap is the mean of n_Z = steps / every"
    )
    lr_multiplier: float = Field(
        0.01, gt=0, description="the paper's mu: learning rate, as a multiple of training.optimizer.lr"
    )
    inference: Literal["both", "shared", "private"] = Field(
        "both", description="branches that predict, in methods with two: the mean of both, or one alone"
    )
    also: tuple[Variation, ...] = Field(
        (), description="further evaluations from the same state: Ap_lr_multiplier_1, Ap_inference_shared, ..."
    )

    @model_validator(mode="after")
    def _told_apart(self) -> "Personalize":
        if len(self.variants()) <= len(self.also):
            raise ValueError("also: each entry must set a key, and no two may be the same: leave out the others")
        return self

    def variants(self) -> dict[str, "Personalize"]:
        """Return each way of fine-tuning by the name of its metric."""
        found = {"Ap": self}
        for variation in self.also:
            changes = variation.model_dump(exclude_none=True)
            words = [
                f"_{key}_{decimal(value) if isinstance(value, float) else value}" for key, value in changes.items()
            ]
            found["Ap" + "".join(words)] = self.model_copy(update=changes)
        return found


class Union(Strict):
    """The test texts of all clients, or some of them, drawn from the seed."""

    texts: PositiveInt | Literal["all"] = Field(
        "all", description="number of test texts, drawn from those of all clients"
    )
    best_round: bool = Field(
        False,
        description="evaluate the clients of each round after it too, and report each client's best round, which test "
        "texts choose: Local_best_round and Global_best_round, for comparison with papers that report these",
    )


class Evaluation(Strict):
    """When and how models are evaluated."""

    every: int = Field(1, ge=1, description="rounds between two evaluations of Ag; the last round is always evaluated")
    clients: PositiveInt | Literal["all"] = Field(
        "all",
        description="number of clients that are evaluated, drawn from the seed once for the run among those that have "
        "texts for it; their means are the metrics of the run",
    )
    personalize: Personalize | None = Field(Personalize(), description="how Ap is measured; null: not at all")
    personalize_at: Literal["last", "evaluated"] = Field(
        "last",
        description="rounds after which Ap is evaluated; last: the last one; evaluated: every round in which Ag is, "
        "as a learning curve, which fine-tunes each client's model in all of these",
    )
    union: Union | None = Field(
        None,
        description="evaluate each client's own model after the last round: Local on its own test texts, and Global on "
        "those of all clients, with Local_p10 and Global_geometric",
    )
    select: Literal["last"] | Validated = Field(
        "last",
        description="the final model: that of the last round, or of the round with the best value of this metric; test "
        "texts are then evaluated once, with that model, and all metrics of the last record are its own",
    )
    generate: Generate | None = Field(
        None, description="beginnings of texts that the final model of a language model continues; null: none"
    )
    thresholds: dict[Validated, tuple[float, ...]] = Field(
        default_factory=dict,
        description="values of metrics; the first round that reaches one is reported: rounds_to_..., bytes_to_..., "
        "simulated_seconds_to_...",
    )

    @model_validator(mode="after")
    def _told_apart(self) -> "Evaluation":
        for metric, values in self.thresholds.items():
            if not all(map(math.isfinite, values)) or len({threshold(metric, value) for value in values}) < len(values):
                raise ValueError(f"thresholds.{metric}: they must be different numbers")
            if not values:
                raise ValueError(f"thresholds.{metric}: there is no value: write one, as [0.8], or leave it out")
            for value in values if metric in SHARES else ():
                if not 0 <= value <= 1:
                    advice = f": write {value / 100:g}" if 1 < value <= 100 else ""
                    raise ValueError(f"thresholds.{metric}: {value:g} is no share between 0 and 1{advice}")
        return self


class Resources(Strict):
    """A trial's share of the cluster. The result does not depend on it."""

    clients_per_actor: PositiveInt | Literal["auto"] = Field(
        "auto",
        description="clients of an actor on average, which gives the number of actors; clients move with the load",
    )
    cpus_per_actor: float = Field(1.0, ge=0, description="logical CPUs that an actor reserves")
    gpus_per_actor: float | Literal["auto"] = Field(
        "auto", description="GPUs that an actor reserves, 1/n or integer; auto: a share for each client or stack"
    )
    round_timeout_s: float = Field(3600.0, gt=0, description="seconds after which a round fails with a message")
    hang_timeout_s: float = Field(
        60.0,
        gt=0,
        description="seconds after which client actors that have not returned are replaced, beside ten times what they "
        "took in the round before; not with audits, whose rounds differ",
    )
    max_restarts: int = Field(
        3,
        ge=0,
        description="number of times in a row, without a completed round between them, that a trial is restored after "
        "one of its processes died or hung",
    )


class Checkpoint(Strict):
    """When the state of server and clients is written."""

    every: int = Field(1, ge=1, description="rounds between two checkpoints; the last round is always saved")


class Save(Strict):
    """The parts of its model that a run saves, in a folder that ``fedtext.Model.load`` loads."""

    model: Literal["shared", "clients", "none"] = Field(
        "shared",
        description="shared: the shared parameters and the vocabulary; clients: also the private parameters of each "
        "client, which no guarantee covers; none: no folder",
    )


class Tracking(Strict):
    """The MLflow store of runs."""

    uri: str | None = Field(
        None,
        description="MLflow's address; null: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db in the working folder",
    )
    experiment: str | None = Field(None, description="name of the MLflow experiment; null: the experiment's name")
    model: bool = Field(
        True,
        description="whether the model folder of a finished run is also stored as an artifact; never with save.model: "
        "clients",
    )
    register_as: str | None = Field(
        None,
        alias="register",
        description="name in MLflow's model registry under which the model of the best trial becomes a new version",
    )
    system_metrics: bool = Field(
        False,
        description="whether MLflow also logs CPU, memory, disk, network and GPUs of the driver's machine, in the run "
        "of the sweep",
    )

    @field_validator("register_as")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and (not value or set(value) & set("/:")):
            raise ValueError(f"{value!r} is no name in MLflow's registry: write one without / and :")
        return value

    @field_validator("uri")
    @classmethod
    def _has_no_secret(cls, value: str | None) -> str | None:
        if value and has_secret(value):
            raise ValueError(
                f"{redacted(value)} has a password or a token in it, and experiments are stored with runs: leave the "
                "key out, and give the address by $MLFLOW_TRACKING_URI (a server's password by "
                "$MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD)"
            )
        return value
