"""Whether a run that has begun can be made longer."""

from collections.abc import Collection, Iterable
from pathlib import Path

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError, option
from fedtext.state.fingerprint import fixed_length
from sweeps.points import told_rounds, unsuggested
from tune_spaces.cases import Case
from tune_spaces.space import keys_of

OTHERWISE = "otherwise"  # it would be another experiment, not a longer run


def not_extended(begun: Experiment, asked: Experiment, changed: Collection[str], folder: Path) -> str:
    """Return why a run cannot go on with more rounds, or a search with more points.

    Args:
        begun: The experiment that the run was begun with.
        asked: The experiment that it would go on with.
        changed: The keys in which they differ, of which there are some.
        folder: The run's folder.

    Returns:
        What it cannot have more of, and why; ``OTHERWISE`` if anything else has changed; empty if it can go on.
    """
    if list(changed) == ["tune.samples"] and asked.tune.search != "random":
        if asked.tune.samples <= begun.tune.samples:
            return OTHERWISE
        if (told := told_rounds(folder)) in (None, asked.training.rounds):
            return ""
        return f"points: its search knows results of {told} rounds, and its trials have {asked.training.rounds} now"
    if list(changed) != ["training.rounds"] or asked.training.rounds < begun.training.rounds:
        return OTHERWISE
    if asked.tune.scheduler != "none":
        return f"rounds: tune.scheduler: {asked.tune.scheduler} has compared its trials by them"
    keys = [key for name, spec in asked.space.items() for key in keys_of(name, spec)]
    swept = [key for key in keys if key.startswith(("training.rounds", "evaluation", "server.noise"))]
    if why := f"its space has {swept[0]}" if swept else fixed_length(asked):
        return f"rounds: {why}"
    if asked.tune.search != "random" and (left := unsuggested(asked.tune.samples, folder)):
        return (
            f"rounds: its search still has {left} points to suggest, by results of the present number: let it end first"
        )
    return ""


def check_longer(cases: Iterable[Case], name: str, rounds: int) -> None:
    """Check that each trial of a run that goes on with more rounds can do so. The space may set whole sections.

    Args:
        cases: The trials.
        name: Name of the run.
        rounds: The number of rounds that it would have.

    Raises:
        UserError: One of them cannot, or would not have more rounds.
    """
    for case in cases:
        why = fixed_length(case.experiment)
        if case.experiment.training.rounds != rounds:
            why = f"its trial {case.id} has a number of its own"
        if why and not case.problem:
            raise UserError(f"{option('resume')}: {name} cannot have more rounds: {why}; start a new run")
