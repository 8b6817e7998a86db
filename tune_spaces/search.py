"""Points of a space suggested by the results of earlier ones.

The sampler is Optuna's, through ``ray.tune.search.optuna``. What it is told before it suggests a point is fixed by the
number of the point, not by which trial ended first: the same experiment has the same points on any cluster, and a
search that was interrupted is repeated from its log.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.seeding import derive
from tune_spaces.space import FORMS, check_space, dimension

INSTALL = "tune.search: tpe suggests points by Optuna, which is not installed: pip install 'fedtext[search]'"


@dataclass(frozen=True)
class Result:
    """The result of a point.

    Attributes:
        values: Its objectives, in their order; None: it has failed, or has been stopped.
        rounds: Of a point that a scheduler has stopped, the rounds and their values of the objective.
    """

    values: tuple[float, ...] | None = None
    rounds: tuple[tuple[int, float], ...] = ()

    @staticmethod
    def of(values: Sequence[float | None]) -> "Result":
        """Return the result of a point that has ended; without a value, or with one that is not finite, it has
        failed."""
        found = tuple(value for value in values if value is not None and math.isfinite(value))
        return Result(found if len(found) == len(values) else None)


class Search:
    """Suggests points one after the other, each by the results of those at least ``tune.pending`` before it."""

    def __init__(self, experiment: Experiment) -> None:
        """Create a search.

        Args:
            experiment: The experiment with its space.

        Raises:
            UserError: The space cannot be searched, or Optuna is not installed.
        """
        if not experiment.space:
            raise UserError("tune.search: tpe needs a space: keys and the ranges of their values")
        check_space(experiment)
        if grids := [key for key, spec in experiment.space.items() if "grid" in spec]:
            raise UserError(
                f"space.{grids[0]}.grid: all values of a grid are run, and tune.search: tpe suggests some: write choice"
            )
        self.experiment = experiment
        self.rounds = experiment.training.rounds  # of the trials whose results it is told
        self.points: list[dict[str, Any]] = []
        self.told: list[Result] = []  # in the order of the points
        self._results: dict[int, Result] = {}  # of points that have ended; some of them are not told yet
        _ = self._sampler

    @property
    def left(self) -> int:
        """The number of points that have not been suggested yet."""
        return self.experiment.tune.samples - len(self.points)

    def ask(self) -> dict[str, Any] | None:
        """Return the next point; None if there is none, or if it has to wait for results."""
        needed = len(self.points) - self.experiment.tune.pending  # the last point whose result it depends on
        if self.left <= 0 or any(number not in self._results for number in range(len(self.told), needed + 1)):
            return None
        for number in range(len(self.told), needed + 1):
            self._tell(number, self._results[number])
        drawn = self._sampler.suggest(str(len(self.points)))
        point = {key: self._value(key, drawn[key]) for key in self.experiment.space}
        self.points.append(point)
        return point

    def end(self, number: int, result: Result) -> None:
        """Note the result of a point. The first one counts: a search cannot forget."""
        self._results.setdefault(number, result)

    def log(self) -> dict[str, Any]:
        """Return the points and what has been told, for ``restored``."""
        told = [{"values": one.values, "rounds": one.rounds} for one in self.told]
        return {"optuna": _version(), "points": self.points, "told": told, "rounds": self.rounds}

    def restore(self, log: Mapping[str, Any]) -> None:
        """Repeat a search that was interrupted.

        Args:
            log: The return value of ``log``.

        Raises:
            UserError: The installed Optuna suggests other points.
        """
        if log["told"]:
            self.rounds = log["rounds"]
        for number, one in enumerate(log["told"]):
            values = None if one["values"] is None else tuple(one["values"])
            self.end(number, Result(values, tuple((int(r), float(v)) for r, v in one["rounds"])))
        for point in log["points"]:
            if self.ask() != point:
                raise UserError(
                    f"tune.search: Optuna {_version()} suggests other points than {log['optuna']}, with which this "
                    f"sweep was begun: install that version (pip install optuna=={log['optuna']}), or start a new sweep"
                )

    def _tell(self, number: int, result: Result) -> None:
        names, name = list(self.experiment.tune.objectives), str(number)
        self.told.append(result)
        for round_, value in result.rounds:
            self._sampler.on_trial_result(name, {names[0]: value, "training_iteration": round_})
        if result.values is None:  # without a value and no failure, it counts as pruned
            self._sampler.on_trial_complete(name, None, error=not result.rounds)
        else:
            self._sampler.on_trial_complete(name, dict(zip(names, result.values, strict=True)))

    @cached_property
    def _sampler(self) -> Any:
        try:
            import optuna
        except ImportError as error:
            raise UserError(INSTALL) from error
        from ray import tune
        from ray.tune.search.optuna import OptunaSearch

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        config, seed = self.experiment.tune, derive(self.experiment.seed, "search") % 2**32
        domains = {}
        for key, spec in self.experiment.space.items():
            domain = dimension(key, spec)
            ((form, values),) = spec.items()
            # Values of a choice by their places: Optuna takes neither lists nor mappings.
            domains[key] = domain if FORMS[form] else tune.choice(list(range(len(values))))
        return OptunaSearch(
            OptunaSearch.convert_search_space(domains),
            metric=list(config.objectives) if config.metrics else config.metric,
            mode=list(config.objectives.values()) if config.metrics else config.direction,
            sampler=optuna.samplers.TPESampler(n_startup_trials=config.startup, seed=seed),
        )

    def _value(self, key: str, drawn: Any) -> Any:
        ((form, values),) = self.experiment.space[key].items()
        return drawn if FORMS[form] else list(values)[drawn]


def first_points(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the points of a search that depend on no results; empty if nothing is searched.

    Raises:
        UserError: The space cannot be searched, or Optuna is not installed.
    """
    if experiment.tune.search == "random":
        return []
    search = Search(experiment)
    while search.ask() is not None:
        pass
    return search.points


def _version() -> str:
    import optuna

    return optuna.__version__
