"""Why a trial of Ray Tune failed, in words."""

from pathlib import Path

import ray.exceptions
from ray import cloudpickle
from ray.tune.experiment import Trial

from dashboards.trial import one_line


def failure_of(trial: Trial) -> str:
    """Return why a trial failed, in one sentence: the exception of its code, without the traceback."""
    error = raised(trial)
    if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    lines = [line.strip() for line in str(error or "").splitlines() if line.strip()]
    if not lines:
        return type(error).__name__ if error else "its process ended without saying why"
    if isinstance(error, ray.exceptions.RayTaskError):  # only the text of a traceback: its last line is the exception
        return one_line(lines[-1])
    builtin = type(error).__module__ == "builtins"  # an error of a library or ours speaks for itself
    return one_line(f"{type(error).__name__}: {lines[0]}" if builtin else lines[0])


def raised(trial: Trial) -> Exception | None:
    """Load the exception that Tune kept of a failure.

    The file is on the driver's disk; Tune's own reader looks where it is copied to later.
    """
    path = trial.pickled_error_file
    if not path or not Path(path).exists():
        return None
    try:
        error = cloudpickle.loads(Path(path).read_bytes())
    except Exception:  # the class of the exception decides what loading raises; without an outcome a search would wait
        return None
    return error if isinstance(error, Exception) else None


def server_died(trial: Trial) -> bool:
    """Whether a trial failed since the process of its server died, which then could count nothing."""
    return isinstance(raised(trial), ray.exceptions.RayActorError)
