"""The sections of an experiment that belong to no part of it: who takes part, when, where, and what is kept."""

import math
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from fedtext.config.fields import AggregationField, ServerOptimizerField
from fedtext.config.selection import Sorting, Validated, threshold
from fedtext.config.server import MethodsOwn, Noise, ServerSGD
from fedtext.metrics import smaller_is_better
from fedtext.schema import Strict


class Participation(Strict):
    """Who takes part in a round."""

    fraction: float = Field(1.0, gt=0, le=1, description="share of the clients sampled each round")
    sampling: Literal["fixed", "poisson"] = Field(
        "fixed",
        description="fixed: a fixed number of clients each round; poisson: each client by itself with this chance",
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
        (), description="other evaluations from the same state: Ap_lr_multiplier_1, Ap_inference_shared, ..."
    )

    def variants(self) -> dict[str, "Personalize"]:
        """Return each way of fine-tuning by the name of its metric."""
        found = {"Ap": self}
        for variation in self.also:
            changes = variation.model_dump(exclude_none=True)
            words = [
                f"_{key}_{value:g}" if isinstance(value, float) else f"_{key}_{value}" for key, value in changes.items()
            ]
            found["Ap" + "".join(words)] = self.model_copy(update=changes)
        return found


class Union(Strict):
    """The test texts of all clients, or some of them, drawn from the seed."""

    texts: PositiveInt | Literal["all"] = Field("all", description="how many of the clients' test texts")


class Evaluation(Strict):
    """When accuracy, or a language model's perplexity, is evaluated, and of which model."""

    every: int = Field(1, ge=1, description="rounds between two evaluations of Ag; the last round is always evaluated")
    personalize: Personalize | None = Field(Personalize(), description="how Ap is measured; null: not at all")
    union: Union | None = Field(
        None,
        description="after the last round: Local, of each client's own model on its own test texts, and Global, of the "
        "same on those of all clients, with Local_p10 and Global_geometric",
    )
    select: Literal["last"] | Validated = Field(
        "last",
        description="whose model counts in the end: the last round's, or that of the round with the best value of "
        "this; test texts are then evaluated once, by that model, and the last row's metrics are all its own",
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
    """A trial's share of the cluster. The result does not depend on it."""

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
    """Which part of its model a run keeps, in a folder that ``fedtext.Model.load`` loads."""

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
        """Whether a larger or a smaller metric is better."""
        return self.mode if self.mode != "auto" else "min" if smaller_is_better(self.metric) else "max"
