"""Whether clients' losses had the terms that their method weighs: a weight of none would be ignored without a word."""

from collections.abc import Collection

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.methods.terms import unknown_terms
from fedtext.metrics import reported

PREFIX = "loss_"  # of terms and of earlier phases among the metrics of a local update


def check_terms(experiment: Experiment, metrics: Collection[str], texts: int) -> None:
    """Check that the local updates of a round had every term that the method's weights name.

    A term may be left out of a batch of one text, as a distance between texts is. Nothing is known then of a round in
    which no client is sure to have had more: a phase may be of half of its texts.

    Args:
        experiment: The experiment.
        metrics: The names of the metrics of the round's local updates.
        texts: The largest number of train texts of a client behind them; 0 without any.

    Raises:
        UserError: No local update had such a term, or one has a name that results cannot have.
    """
    for name in metrics:
        if problem := reported.name_problem(name):
            raise UserError(f"method: {experiment.method.name} logs {problem}")
    method, half = experiment.method, texts // 2
    if half < 2 or experiment.training.batch(half) < 2:
        return
    earlier = {phase.name for phase in method.phases(experiment.training.local_epochs)[:-1]}
    there = [name.removeprefix(PREFIX) for name in metrics if name.startswith(PREFIX)]
    if problem := unknown_terms(method, [name for name in there if name not in earlier]):
        raise UserError(f"method: {problem}: name them alike, and return 0 for a term in batches and rounds without it")
