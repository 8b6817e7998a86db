"""Results of all repetitions as one Markdown table."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .measure import Reading
from .workloads import Workload

COLUMNS = (
    "workload",
    "system",
    "s / round",
    "samples / s",
    "CPU s / round",
    "first round with start, s",
    "CPU s in all",
    "peak PSS, MB",
    "weights: largest difference of largest change",
)


@dataclass
class Result:
    """One system on one workload, or why it failed.

    Each repetition has a measurement, the largest difference of its final weights from the reference's (None without a
    reference), and that from the initial weights.
    """

    workload: Workload
    system: str
    workers: int
    readings: list[Reading]
    differences: list[float | None]
    changes: list[float]
    failure: str = ""

    def figures(self) -> dict[str, list[float]]:
        """Return the measurements of each repetition. A round takes the median of the rounds after the first."""
        rounds = [statistics.median(reading.rounds_s) for reading in self.readings]
        samples = self.workload.clients * self.workload.texts
        return {
            "round_s": rounds,
            "samples_per_s": [samples / seconds for seconds in rounds],
            "cpu_round_s": [reading.cpu_rounds_s for reading in self.readings],
            "first_s": [reading.first_s for reading in self.readings],
            "cpu_s": [reading.cpu_s for reading in self.readings],
            "peak_pss_mb": [reading.peak_pss / 2**20 for reading in self.readings],
        }

    def content(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self) | {"turns": self.figures() if self.readings else {}}

    def row(self) -> str:
        name = f"{self.system}, {self.workers} process" + ("es" if self.workers > 1 else "")
        if self.failure:
            cells = [f"failed: {self.failure.replace('|', '/')}", *[""] * (len(COLUMNS) - 3)]
        else:
            cells = [spread(values) for values in self.figures().values()]
            known = [difference for difference in self.differences if difference is not None]
            cells.append(f"{max(known):.0e} of {max(self.changes):.0e}" if known else "not compared")
        return line([self.workload.name, name, *cells])


def spread(values: Sequence[float]) -> str:
    """Return the median, with minimum and maximum if there are several values."""
    middle, low, high = (number(pick(values)) for pick in (statistics.median, min, max))
    return middle if len(values) == 1 else f"{middle} ({low}..{high})"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(results: Sequence[Result]) -> str:
    return "\n".join([line(COLUMNS), line(["---"] * len(COLUMNS)), *[result.row() for result in results]])
