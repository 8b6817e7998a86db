"""Saved views of MLflow's pages: which runs, columns and charts a page opens with.

MLflow keeps a view as a tag of the experiment, under ``Views`` of its pages. The format is that of its own pages; a
server that does not know it opens its usual page.
"""

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from dashboards.names import FINE_TUNING, GROUPS, logged

TAG = "mlflow.sharedViewState."
LONGEST = 5000  # characters of a tag of an experiment
PARALLEL = "swept keys"  # the section with the parallel coordinates
PIXELS, MARGIN = 8, 42  # width of a character in a column's head, and of what stands beside it


@dataclass(frozen=True)
class View:
    """A page of the trials of a sweep.

    Attributes:
        name: Name of the sweep, and of the view.
        parameters: The swept keys, as MLflow has them.
        metrics: The metrics that columns are shown of, by their names in records; the first one sorts.
        ascending: Whether the smallest value comes first.
        several: Whether cases have several seeds; the page has their means then.
    """

    name: str
    parameters: Sequence[str]
    metrics: Sequence[str]
    ascending: bool
    several: bool

    @property
    def filter(self) -> str:
        """The search of the runs."""
        shown = "seeds" if self.several else "fedtext.case"
        return f"tags.`fedtext.run` = '{self.name}' AND tags.`{shown}` != ''"

    def tag(self, at: float) -> tuple[str, str]:
        """Return the tag of an experiment that keeps the view. ``at``: the time in unix seconds."""
        state = base64.b64encode(zlib.compress(json.dumps(self._state()).encode(), 9)).decode()
        kept = {"name": self.name, "createdAt": round(1000 * at), "state": f"deflate;{state}"}
        return f"{TAG}{self.name}", json.dumps(kept)

    def _state(self) -> dict[str, Any]:
        columns = [("params", name) for name in self.parameters]
        columns += [("metrics", logged(name)) for name in self.metrics]
        chart = {
            "type": "PARALLEL",
            "uuid": "0",
            "metricSectionId": PARALLEL,
            "runsCountToCompare": 10,
            "selectedParams": [name for name in self.parameters if name != "method"] or list(self.parameters),
            "selectedMetrics": [logged(self.metrics[0])],
            "showAllRuns": True,
            "isGenerated": False,
            "deleted": False,
        }
        topics = list(GROUPS.values())
        sections = [PARALLEL, topics[0], FINE_TUNING.rstrip("/"), *topics[1:]]
        return {
            "searchFilter": self.filter,
            "orderByKey": f"metrics.`{logged(self.metrics[0])}`",
            "orderByAsc": self.ascending,
            "selectedColumns": [f"{kind}.`{name}`" for kind, name in columns],
            "columnOrder": [f"{kind}.`{name}`" for kind, name in columns],
            "columnWidths": {f"{kind}.`{name}`": MARGIN + PIXELS * len(name) for kind, name in columns},
            "runsHiddenMode": "FIRST_20_RUNS",
            "compareRunCharts": [chart],
            "compareRunSections": [
                {"uuid": name, "name": name, "display": True, "isReordered": False, "deleted": False}
                | ({"columns": 1} if name == PARALLEL else {})  # as wide as the page: an axis for each swept key
                for name in sections
            ],
            "isAccordionReordered": True,  # keeps our order of sections
        }


def path(experiment_id: str, view: str | None = None, charts: bool = False) -> str:
    """Return the path of a page of an experiment's runs.

    Args:
        experiment_id: Id of the experiment in MLflow.
        view: Name of the view that it opens with; None: MLflow's own.
        charts: Whether to show charts beside the list of runs, instead of a table.
    """
    query = {"viewStateShareKey": view} if view else {}
    query |= {"compareRunsMode": "CHART"} if charts else {}
    query |= {"workflowType": "machine_learning"}
    return f"/#/experiments/{experiment_id}/runs?{urlencode(query, quote_via=quote)}"
