"""Results of all repetitions as one Markdown table."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .measure import Reading
from .systems import SYSTEMS
from .workloads import Workload

COLUMNS = (
    "workload",
    "system",
    "s / round",
    "samples / s",
    "CPU s / round",
    "CPU, times {reference}",
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

    def ratios(self, reference: "Result | None") -> list[float]:
        """Return how many times the reference's CPU time a round takes, in each repetition."""
        if reference is None or reference.failure:
            return []
        pairs = zip(self.readings, reference.readings, strict=True)
        return [own.cpu_rounds_s / other.cpu_rounds_s for own, other in pairs]

    def row(self, reference: "Result | None") -> str:
        """Return the row of the table.

        Args:
            reference: The result of the reference on this workload, if it ran.
        """
        units = ("thread", "threads") if SYSTEMS[self.system].threads else ("process", "processes")
        name = f"{self.system}, {self.workers} {units[self.workers > 1]}"
        if self.failure:
            cells = [f"failed: {self.failure.replace('|', '/')}", *[""] * (len(COLUMNS) - 3)]
        else:
            cells = [spread(values) for values in self.figures().values()]
            ratios = self.ratios(reference)
            cells.insert(3, spread(ratios) if ratios else "")
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


def table(results: Sequence[Result], reference: str) -> str:
    """Return the results as a table.

    Args:
        results: The results.
        reference: Name of the system with whose CPU time that of the others is compared.
    """
    first = {result.workload.name: result for result in results if result.system == reference}
    names = [name.format(reference=reference) for name in COLUMNS]
    rows = [result.row(first.get(result.workload.name)) for result in results]
    return "\n".join([line(names), line(["---"] * len(names)), *rows])
