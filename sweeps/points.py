"""The points of a run's search, as its folder has them."""

from pathlib import Path
from typing import Any

from sweeps.stored import Points, stored

LOG = "search.json"  # the points in order, and the results that the search has been told


def suggested_points(folder: Path) -> list[dict[str, Any]]:
    """Return the points that the search of a run has suggested; empty without a search."""
    log = folder / LOG
    return stored(log, Points)["points"] if log.is_file() else []


def unsuggested(samples: int, folder: Path) -> int:
    """Return the number of points that the search of a run has not suggested yet.

    Args:
        samples: The number of all points.
        folder: The run's folder.
    """
    return max(0, samples - len(suggested_points(folder)))
