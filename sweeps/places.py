"""Where runs are kept, and the names of their files. It imports neither Ray nor torch: ``fedtext ls`` does not wait."""

import os
from pathlib import Path

from actors.job import job_ships_code
from fedtext.runtime.paths import expanded

PLAN, OUTCOME, RESOLVED = "plan.json", "outcome.json", "experiment.yaml"
LOSSES = "losses.json"
STORAGE = "runs"  # the default of the experiment's key ``storage``


def home() -> Path:
    """Return the folder of results: $FEDTEXT_HOME; else ~/fedtext inside a job, whose working folder is a copy that Ray
    deletes; else the working folder."""
    if named := os.environ.get("FEDTEXT_HOME"):
        return expanded(named, "$FEDTEXT_HOME").resolve()
    return expanded("~/fedtext", "$FEDTEXT_HOME") if job_ships_code() else Path.cwd()


def candidates(storage: Path, run: str) -> list[Path]:
    """Return where a run can be that is given as a path or a name: as ``runs/NAME`` it may be in $FEDTEXT_HOME."""
    return [Path(run), storage / run, home() / run] if run else []
