"""Ray jobs, as their processes see them. It does not import Ray."""

import json
import os


def job_ships_code() -> bool:
    """Whether this process is a Ray job whose working folder was shipped (``ray job submit --working-dir``)."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    return "working_dir" in (job.get("runtime_env") or {})
