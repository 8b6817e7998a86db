"""The points of a run's search, as its folder has them."""

from pathlib import Path
from typing import Any

from sweeps.stored import Log, Points, stored

LOG = "search.json"  # the points in order, and the results that the search has been told


def suggested_points(folder: Path) -> list[dict[str, Any]]:
    """Return the points that the search of a run has suggested; empty without a search."""
    log = folder / LOG
    return stored(log, Points)["points"] if log.is_file() else []


def told_rounds(folder: Path) -> int | None:
    """Return the rounds of the trials by whose results the search of a run has suggested points; None: there are none,
    or an earlier version did not write how many."""
    log = folder / LOG
    found = stored(log, Log) if log.is_file() else None
    return found.get("rounds") if found and found["told"] else None


def unsuggested(samples: int, folder: Path) -> int:
    """Return the number of points that the search of a run has not suggested yet.

    Args:
        samples: The number of all points.
        folder: The run's folder.
    """
    return max(0, samples - len(suggested_points(folder)))
