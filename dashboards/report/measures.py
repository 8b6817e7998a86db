"""The values that a report shows of a trial: name, unit, direction and number format of each."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dashboards.figures import PERCENT, PERPLEXITY, Unit
from fedtext.metrics import find
from fedtext.metrics.wording import FORMATS, data_size, decimal, duration, percent


def equal(one: float, other: float) -> bool:
    """Whether two means differ by rounding alone."""
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


@dataclass(frozen=True)
class Measure:
    """A value of a trial.

    Args:
        name: As in the records, or one of ``COSTS``.
        unit: The unit in which tables and plots show it.
        write: Formats a value as it is in the records.
        summary: Its meaning.
        ranked: Whether one direction is better.
    """

    name: str
    unit: Unit
    write: Callable[[float], str]
    summary: str
    ranked: bool = True

    @property
    def head(self) -> str:
        """The heading of its column: ``Ap (%)``."""
        return f"{self.name} ({self.unit.name})" if self.unit.name else self.name

    def shown(self, value: float) -> str:
        """Format a value that is in ``unit``."""
        return self.write(value / self.unit.factor)

    def signed(self, value: float) -> str:
        """Format a difference of two values in ``unit``."""
        text = self.shown(abs(value))
        sign = "+" if value > 0 else "−"
        return sign + text if any(digit in text for digit in "123456789") else text  # a zero has none

    def tick(self, value: float) -> str:
        """Format a value in ``unit`` beside an axis."""
        if self.write in (percent, decimal, _plain):
            return f"{value:.10g}".replace("-", "−")
        if self.write is duration and value < 10:
            return f"{value:.3g} s"
        return self.shown(value)

    def better(self, one: float, other: float) -> bool:
        """Whether ``one`` is better than ``other``."""
        return one < other if self.unit.less else one > other


def _plain(value: float) -> str:
    return f"{value:.4g}"


_SHARE_LOST = Unit("%", 100.0)
_TIME = Unit("")
COSTS = {
    measure.name: measure
    for measure in (
        Measure("rounds", Unit("", less=True), lambda value: f"{value:g}", "completed rounds", ranked=False),
        Measure("bytes up", _TIME, data_size, "bytes sent by all clients in all rounds"),
        Measure("bytes down", _TIME, data_size, "bytes sent to all clients in all rounds"),
        Measure(
            "bytes/client/round",
            _TIME,
            data_size,
            "bytes both ways of a round per client whose update was aggregated, mean over rounds",
        ),
        Measure("CPU time", _TIME, duration, "CPU time of all clients' local updates together, all rounds"),
        Measure("GPU time", _TIME, duration, "wall time of all local updates on GPUs, those that share one added up"),
        Measure("training time", _TIME, duration, "wall time of training and aggregation, all rounds"),
        Measure("total time", _TIME, duration, "wall time of all rounds with their evaluations"),
    )
}


def measure(name: str) -> Measure:
    """Return the description of a metric, or of a cost."""
    if name in COSTS:
        return COSTS[name]
    known = find(name)
    if known is None:
        return Measure(name, Unit("", less=False), _plain, "", ranked=False)
    # Methods have different objectives, whose values cannot be compared, and epsilon is not measured but claimed.
    ranked = known.better != "neither" and known.kind not in ("training", "privacy")
    less, said = known.better == "smaller", known.summary
    if known.unit == "fraction":
        return Measure(name, _SHARE_LOST if less else PERCENT, percent, said, ranked)
    if known.unit == "perplexity":
        return Measure(name, Unit("", none=PERPLEXITY.none), lambda value: f"{value:.1f}", said, ranked)
    return Measure(name, Unit("", less=less), FORMATS.get(known.unit, _plain), said, ranked)
