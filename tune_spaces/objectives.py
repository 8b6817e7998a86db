"""Whether trials have the metrics by which they are compared, when they are needed."""

from typing import get_args

from fedtext.config.experiment import Experiment
from fedtext.config.selection import Sorting
from fedtext.errors import UserError
from fedtext.metrics import ATTACKED, EVALUATED, LATE, find


def check_metric(experiment: Experiment, baseline: bool = False) -> None:
    """Raise UserError if trials would be compared by a metric that they lack, or lack when the scheduler needs it."""
    metric, tune = experiment.tune.metric, experiment.tune
    _check_evaluated("tune.metric", metric, experiment, baseline)
    for name in tune.metrics:
        if name != metric:
            _check_objective(name, experiment, baseline)
    if tune.scheduler != "none":
        _check_stops(metric, experiment)


def _check_evaluated(key: str, metric: str, experiment: Experiment, baseline: bool) -> None:
    """Raise UserError if an evaluation, or the loss, is not computed."""
    if metric.endswith("_val") and not experiment.corpus.validation:
        raise UserError(
            f"{key}: {metric} is evaluated on validation texts and corpus.validation is 0: set it, to 0.1 for "
            f"example, or sort by {metric.removesuffix('_val')}, which is evaluated on the test split"
        )
    if metric == "loss" or metric in experiment.evaluated_metrics or baseline:
        return
    why = ""
    if not experiment.language and metric.startswith(("Ag", "AUC")) and not experiment.complete:
        why = f", and what {experiment.method.name} shares is no complete model"
    elif not experiment.language and metric.startswith("Ap"):
        why = ", it needs evaluation.personalize"
    elif not experiment.language and metric.startswith(("Local", "Global")):
        why = ", it needs evaluation.union"
    what = f"{experiment.method.name} with {experiment.model.name}"
    there = " or ".join([*sorted(experiment.evaluated_metrics & set(get_args(Sorting))), "loss"])
    raise UserError(f"{key}: {metric} is not computed for {what}{why}: sort by {there}")


def _check_objective(name: str, experiment: Experiment, baseline: bool) -> None:
    """Raise UserError if a metric of a multi-objective search is not computed."""
    metric = find(name)
    assert metric is not None  # as the section tune has checked
    if metric.kind == "evaluation":
        _check_evaluated("tune.metrics", name, experiment, baseline)
    elif metric.kind == "attack" and not baseline:
        there = {computed for audit in experiment.audits for computed in audit.metrics}
        if name not in there:
            audit = metric.summary.partition(":")[0].partition(",")[0]
            raise UserError(f"tune.metrics: {name} is measured by an audit: add {audit} to audits")
    elif name == "epsilon" and not baseline:
        noisy = experiment.server.noise or any(mechanism.randomises for mechanism in experiment.uplink)
        if not noisy:
            raise UserError(
                "tune.metrics: epsilon is of a run with a guarantee, and nothing here adds noise: add a mechanism with "
                "noise to uplink, or server.noise"
            )


def _check_stops(metric: str, experiment: Experiment) -> None:
    """Raise UserError if a scheduler that stops trials would lack what it compares."""
    tune, described = experiment.tune, find(metric)
    assert described is not None  # all of Sorting is
    key = f"tune.scheduler: {tune.scheduler}"
    if tune.grace_rounds > experiment.training.rounds:
        raise UserError(
            f"tune.grace_rounds ({tune.grace_rounds}) is more than training.rounds ({experiment.training.rounds}): "
            f"{tune.scheduler} would have nothing to stop"
        )
    if described.when in (EVALUATED, ATTACKED) and experiment.evaluation.every > 1 and tune.scheduler != "pbt":
        raise UserError(f"{key} compares trials every round: set evaluation.every to 1 to compute {metric}")
    if experiment.evaluation.select != "last" and f"{metric}_val" in experiment.evaluated_metrics:
        raise UserError(
            f"{key} compares trials every round, and evaluation.select leaves {metric} to the end: set tune.metric to "
            f"{metric}_val"
        )
    if experiment.seeds > 1:
        raise UserError(f"{key} would stop seeds of one case at different rounds: leave seeds at 1")
    if described.when == LATE:
        raise UserError(
            f"{key} compares trials round by round, and {metric} is computed after the last round only: set "
            f"tune.metric to Ag{'_val' if metric.endswith('_val') else ''} or loss"
        )
