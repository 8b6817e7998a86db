"""How the space of a sweep is searched: the section ``tune``."""

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from fedtext.config.selection import BEST_ROUND, Sorting
from fedtext.metrics import find, smaller_is_better
from fedtext.schema import Strict

Mode = Literal["max", "min"]

# Keys that some searches or schedulers alone read, with the key and the values under which they do.
_READ_BY: dict[str, tuple[str, tuple[str, ...]]] = {
    "startup": ("search", ("tpe",)),
    "pending": ("search", ("tpe",)),
    "seeds": ("search", ("tpe",)),
    "grace_rounds": ("scheduler", ("asha", "median")),
    "reduction": ("scheduler", ("asha",)),
    "interval": ("scheduler", ("pbt",)),
    "quantile": ("scheduler", ("pbt",)),
}


class Tune(Strict):
    """How the space is searched."""

    metric: Sorting = Field("Ap_val", description="metric by which trials are sorted")
    mode: Literal["auto", "max", "min"] = Field(
        "auto", description="whether larger or smaller values are better; auto: smaller losses and perplexities"
    )
    metrics: tuple[str, ...] = Field(
        (),
        description="metrics of a multi-objective search, metric among them: [Ap_val, epsilon, bytes_total]; the "
        "Pareto front has the trials that no other one dominates (at least as good in all, and better in one)",
    )
    search: Literal["random", "tpe"] = Field(
        "random",
        description="random: the whole grid, times samples draws of the random dimensions; tpe: points suggested by "
        "the results of earlier ones (Optuna's tree-structured Parzen estimator)",
    )
    samples: int = Field(
        1, ge=1, description="random: draws of the random dimensions for each point of the grid; tpe: number of points"
    )
    startup: int = Field(10, ge=1, description="tpe: number of points at random before results are used")
    pending: int = Field(
        4,
        ge=1,
        description="tpe: points that run at the same time; each is suggested by the results of all but the last "
        "pending - 1 before it, whatever the cluster",
    )
    seeds: Literal["inside", "outside"] = Field(
        "inside",
        description="tpe with seeds above 1; inside: a point is judged by its mean over seeds; outside: by its first "
        "seed, and the others only repeat it",
    )
    scheduler: Literal["none", "asha", "median", "pbt"] = Field(
        "none",
        description="asha: stop the worse trials early (asynchronous successive halving); median: stop a trial whose "
        "best value is worse than the median of the others' running means; pbt: the worst trials continue from the "
        "best ones with changed keys (population-based training)",
    )
    grace_rounds: int = Field(1, ge=1, description="rounds before asha or median may stop a trial")
    reduction: int = Field(4, ge=2, description="asha: one of this number of trials goes on at each rung")
    interval: int = Field(5, ge=1, description="pbt: rounds of a generation, after which trials are compared")
    quantile: float = Field(
        0.25, gt=0, le=0.5, description="pbt: share of the trials that continue from as many best ones"
    )
    concurrent: PositiveInt | Literal["auto"] = Field(
        "auto", description="number of trials at the same time; auto: as many as fit"
    )

    @property
    def direction(self) -> Mode:
        """Whether a larger or a smaller metric is better."""
        return self.mode if self.mode != "auto" else "min" if smaller_is_better(self.metric) else "max"

    @property
    def objectives(self) -> dict[str, Mode]:
        """The metrics that are searched for, with the direction of each: ``metrics``, or ``metric`` alone."""
        found: dict[str, Mode] = {name: "min" if smaller_is_better(name) else "max" for name in self.metrics}
        return found | {self.metric: self.direction}

    @model_validator(mode="after")
    def _consistent(self) -> "Tune":
        for key, (by, values) in _READ_BY.items():
            if getattr(self, key) != type(self).model_fields[key].default and getattr(self, by) not in values:
                raise ValueError(f"tune.{key} has no effect with {by}: {getattr(self, by)}: set tune.{by} to "
                                 f"{' or '.join(values)}, or leave it out")  # fmt: skip
        if self.scheduler == "pbt" and self.search != "random":
            raise ValueError("tune.scheduler: pbt draws its population at random: leave tune.search at random")
        if not self.metrics:
            return self
        if self.metric not in self.metrics or len(set(self.metrics)) < max(2, len(self.metrics)):
            raise ValueError(
                f"tune.metrics must be several different metrics, tune.metric ({self.metric}) among them, or left out"
            )
        for name in self.metrics:
            metric = find(name)
            if metric is None:
                raise ValueError(f"tune.metrics: there is no metric {name} (--keys metrics lists all)")
            if metric.better == "neither" or metric.kind in ("cost", "sweep") or metric.unit == "delta":
                raise ValueError(f"tune.metrics: {name} is nothing to optimise: {metric.summary}")
            if name.endswith(BEST_ROUND):
                raise ValueError(f"tune.metrics: test texts have chosen {name}: use {name.removesuffix(BEST_ROUND)}")
        if self.scheduler != "none":
            raise ValueError(
                f"tune.scheduler: {self.scheduler} compares by one metric: leave out the scheduler or tune.metrics"
            )
        return self
