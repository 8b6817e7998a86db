"""The cases of a sweep: the baselines of an experiment, then every point of its ``space``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from fedtext.audits import Audit
from fedtext.config import files
from fedtext.config.compatibility.audits import fits
from fedtext.config.experiment import Experiment
from fedtext.config.overrides import override
from fedtext.config.selection import Sorting
from fedtext.errors import UserError
from fedtext.mechanisms import Mechanism
from fedtext.methods import Method
from fedtext.metrics import LATE, find
from fedtext.seeding import generator
from fedtext.state.fingerprint import SCIENCE

# The forms of a dimension of the space, as Ray Tune names them, and how many numbers each takes; 0: a list.
FORMS = {"grid": 0, "choice": 0, "uniform": 2, "loguniform": 2, "quniform": 3, "randint": 2}


@dataclass(frozen=True)
class Case:
    """One planned trial.

    Args:
        id: The name of its folder.
        group: Shared by the cases that differ in their seeds only.
        label: Its values of the swept keys, for tables.
        baseline: Whether it is a baseline rather than a point of the space.
        overrides: Its values of the swept keys (dotted).
        experiment: The complete experiment, without a space of its own.
    """

    id: str
    group: str
    label: str
    baseline: bool
    overrides: dict[str, Any]
    experiment: Experiment


def check_dimension(key: str, spec: dict[str, Any]) -> None:
    """Raise UserError if a dimension is not one of FORMS with the values that it takes."""
    if len(spec) != 1 or next(iter(spec)) not in FORMS:
        raise UserError(f"space.{key}: write one of {', '.join(FORMS)}, such as {{grid: [0.0, 0.01]}}, not {spec}")
    ((form, values),) = spec.items()
    numbers = FORMS[form]
    if not isinstance(values, list) or not values:
        raise UserError(f"space.{key}.{form} needs a list of values, not {values!r}")
    if numbers and (len(values) != numbers or not all(isinstance(value, int | float) for value in values)):
        raise UserError(f"space.{key}.{form} needs {numbers} numbers, not {values!r}")


def dimension(key: str, spec: dict[str, Any]) -> Any:
    """Return the domain of a dimension: ``{loguniform: [0.001, 1]}`` -> ``tune.loguniform(0.001, 1)``.

    Raises:
        UserError: Nothing can be drawn from it.
    """
    from ray import tune

    ((form, values),) = spec.items()
    if form == "grid":
        return tune.grid_search(values)
    try:
        made = getattr(tune, form)(*values) if FORMS[form] else tune.choice(values)
        made.sample()  # some wrong bounds are noticed only when a value is drawn
    except (ValueError, TypeError, AssertionError, OverflowError, ZeroDivisionError) as error:
        raise UserError(f"space.{key}.{form}: {values!r} cannot be drawn from ({error})") from error
    return made


def points(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Yield every point of the space: the whole grid, times ``tune.samples`` seeded draws of its random dimensions.

    Raises:
        UserError: A dimension is malformed, or its key is not of what is computed.
    """
    if not experiment.space:
        yield {}
        return
    for key, spec in experiment.space.items():
        check_dimension(key, spec)
    for key in experiment.space:
        if key.partition(".")[0] not in SCIENCE:
            raise UserError(f"space.{key}: only what is computed can be swept: {', '.join(sorted(SCIENCE))}")
    if all("grid" in spec for spec in experiment.space.values()):
        yield from _grid(experiment)
        return
    # Imported here: it takes a second, and a grid does not need it.
    from ray.tune.search.variant_generator import generate_variants

    space = {_flat(key): dimension(key, spec) for key, spec in experiment.space.items()}
    draws = generator(experiment.seed, "space")
    for _ in range(experiment.tune.samples):
        for _, variant in generate_variants(space, random_state=draws):
            yield {key.replace("/", "."): _plain(value) for key, value in variant.items()}


def _flat(key: str) -> str:
    """Return a key as Tune gets it: dots would nest in its configuration."""
    return key.replace(".", "/")


def _grid(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Yield the points of a space that is all grid, in Tune's order."""
    if experiment.tune.samples > 1:
        raise UserError(
            "tune.samples repeats the draws of random dimensions, and this space is all grid: leave it at 1 (several "
            "seeds: seeds=3)"
        )
    keys = sorted(experiment.space, key=_flat)
    for values in product(*(experiment.space[key]["grid"] for key in reversed(keys))):
        chosen = dict(zip(reversed(keys), values, strict=True))
        yield {key: chosen[key] for key in experiment.space}


def cases(content: files.Content, experiment: Experiment, source: str) -> list[Case]:
    """Return all cases of a sweep.

    Args:
        content: The content of the experiment file, after overrides.
        experiment: The experiment in it.
        source: The name of the file, for messages.

    Raises:
        UserError: A point of the space is not a valid experiment, or has no metric to sort by.
    """
    base = {key: value for key, value in content.items() if key not in ("space", "baselines", "tune", "seeds")}
    made: list[tuple[str, bool, dict[str, Any], Experiment]] = []
    for method in experiment.baselines:
        chosen = method.model_dump(mode="json")
        content = base | {"method": chosen}
        if (
            method.pooled
        ):  # trained on all texts in one place: no updates, so no uplink or audits, and no client is absent
            absent = ("uplink", "audits", "participation")
            content = {key: value for key, value in content.items() if key not in absent}
            if "server" in content:
                content["server"] = {
                    k: v for k, v in content["server"].items() if k not in ("aggregation", "optimizer", "noise")
                }
        else:
            content = _fitting(content, experiment, experiment.model_copy(update={"method": method}))
        if (
            type(method).private is not Method.private and "evaluation" in content
        ):  # no complete model that could be selected
            content["evaluation"] = {k: v for k, v in content["evaluation"].items() if k != "select"}
        told = method.model_dump(exclude={"name"}, exclude_defaults=True)
        label = " ".join([method.name, *(f"{key}={_short(value)}" for key, value in told.items())])
        made.append((label, True, {}, files.validate(content, source)))
    for point in points(experiment):
        variant = files.validate(override(base, point), f"{source}, space {point}")
        label = " ".join(f"{key.rpartition('.')[2]}={_short(value)}" for key, value in point.items())
        made.append((label or experiment.method.name, False, point, variant))
    if len(made) > 1:
        for _, baseline, _, variant in made:
            check_metric(variant.model_copy(update={"tune": experiment.tune, "seeds": experiment.seeds}), baseline)
    width = max(2, len(str(len(made) - 1)))
    found = []
    for number, (label, baseline, point, variant) in enumerate(made):
        group = f"{number:0{width}d}-{variant.method.name}"
        for seed in range(variant.seed, variant.seed + experiment.seeds):
            name = group if experiment.seeds == 1 else f"{group}-seed{seed}"
            found.append(Case(name, group, label, baseline, point, variant.model_copy(update={"seed": seed})))
    return found


def _fitting(content: files.Content, experiment: Experiment, baseline: Experiment) -> files.Content:
    """Return the content for a baseline.

    Mechanisms and audits of an embedding are left out if it shares none, audits if they do not apply to it, and the
    aggregation if it sends nothing.
    """
    sections: dict[str, Sequence[Mechanism | Audit]] = {"uplink": experiment.uplink, "audits": experiment.audits}
    unfit = {audit.name for audit in experiment.audits if not fits(baseline, audit)}
    if not baseline.shares_table:
        unfit |= {part.name for parts in sections.values() for part in parts if part.needs_table}
    for key, parts in sections.items():
        if any(part.name in unfit for part in parts):
            kept = [written for written, part in zip(content[key], parts, strict=True) if part.name not in unfit]
            content = content | {key: kept}
    if not baseline.method.shares and "server" in content:
        content = content | {"server": {k: v for k, v in content["server"].items() if k != "aggregation"}}
    return content


def check_metric(experiment: Experiment, baseline: bool = False) -> None:
    """Raise UserError if trials would be compared by a metric that they lack, or lack when the scheduler needs it."""
    metric, tune = experiment.tune.metric, experiment.tune
    if metric.endswith("_val") and not experiment.corpus.validation:
        raise UserError(
            f"tune.metric: {metric} is evaluated on validation texts and corpus.validation is 0: set it, to 0.1 for "
            f"example, or sort by {metric.removesuffix('_val')}, which is evaluated on the test split"
        )
    if metric != "loss" and metric not in experiment.evaluated_metrics and not baseline:
        why = ""
        if not experiment.language and metric.startswith(("Ag", "AUC")) and not experiment.method.complete:
            why = f", and what {experiment.method.name} shares is no complete model"
        elif not experiment.language and metric.startswith("Ap"):
            why = ", it needs evaluation.personalize"
        elif not experiment.language and metric.startswith(("Local", "Global")):
            why = ", it needs evaluation.union"
        what = f"{experiment.method.name} with {experiment.model.name}"
        there = " or ".join([*sorted(experiment.evaluated_metrics & set(get_args(Sorting))), "loss"])
        raise UserError(f"tune.metric: {metric} is not computed for {what}{why}: sort by {there}")
    if tune.scheduler == "asha" and tune.grace_rounds > experiment.training.rounds:
        raise UserError(
            f"tune.grace_rounds ({tune.grace_rounds}) is more than training.rounds ({experiment.training.rounds}): "
            "asha would have nothing to stop"
        )
    described = find(metric)
    assert described is not None  # all of Sorting is
    if tune.scheduler == "asha" and described.when == "evaluated rounds" and experiment.evaluation.every > 1:
        raise UserError(
            f"tune.scheduler: asha compares trials every round: set evaluation.every to 1 to compute {metric}"
        )
    if (
        tune.scheduler == "asha"
        and experiment.evaluation.select != "last"
        and f"{metric}_val" in experiment.evaluated_metrics
    ):
        raise UserError(
            f"tune.scheduler: asha compares trials every round, and evaluation.select leaves {metric} to the end: set "
            f"tune.metric to {metric}_val"
        )
    if tune.scheduler == "asha" and experiment.seeds > 1:
        raise UserError("tune.scheduler: asha would stop seeds of one case at different rounds: leave seeds at 1")
    if described.when == LATE and tune.scheduler == "asha":
        raise UserError(
            f"tune.scheduler: asha compares trials round by round, and {metric} is computed after the last round only: "
            f"set tune.metric to Ag{'_val' if metric.endswith('_val') else ''} or loss"
        )


def _plain(value: Any) -> Any:
    """Return a Python number for a numpy number, which Tune may draw: files hold Python's own."""
    return value.item() if hasattr(value, "item") else value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
