"""A single run of an experiment that describes several."""

from fedtext.config.experiment import Experiment
from fedtext.errors import spelled


def describes_several(experiment: Experiment) -> bool:
    """Return whether the experiment has a space, baselines or seeds, which a single run leaves aside."""
    return bool(experiment.space or experiment.baselines or experiment.seeds > 1)


def aside() -> str:
    """Return that a command runs a part of the experiment only."""
    return f"one run: the experiment's space, baselines and seeds are left aside ({spelled('sweep')} runs them)"
