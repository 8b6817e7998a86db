"""The cases of a sweep: the baselines of an experiment, then every point of its ``space``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedtext.audits import Audit
from fedtext.config import files
from fedtext.config.compatibility.audits import fits
from fedtext.config.experiment import Experiment
from fedtext.config.overrides import override
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.mechanisms import Mechanism
from fedtext.methods import Method
from tune_spaces.objectives import check_metric
from tune_spaces.population import check_population
from tune_spaces.space import extremes, points, settings

OF_A_SWEEP = ("space", "baselines", "tune", "seeds")  # keys that no single trial has
DIGITS = 3  # at least, of the numbers of suggested cases: how many there will be may change


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
        problem: Why it cannot run, of a suggested point that is no valid experiment or does not suit its corpus or the
            cluster; ``experiment`` is then the given one.
    """

    id: str
    group: str
    label: str
    baseline: bool
    overrides: dict[str, Any]
    experiment: Experiment
    problem: str = ""


def cases(
    content: files.Content, experiment: Experiment, source: str, suggested: Iterable[dict[str, Any]] = ()
) -> list[Case]:
    """Return all cases of a sweep.

    Args:
        content: The content of the experiment file, after overrides.
        experiment: The experiment in it.
        source: The name of the file, for messages.
        suggested: The points that a search has suggested until now.

    Raises:
        UserError: A point of the space is not a valid experiment, or has no metric to sort by. Of a space that is
            searched its bounds are tried.
    """
    base = {key: value for key, value in content.items() if key not in OF_A_SWEEP}
    baselines = [_baseline(base, experiment, method, source) for method in experiment.baselines]
    if experiment.tune.scheduler == "pbt":
        check_population(experiment)
    if experiment.tune.search == "random":
        made = [_variant(base, experiment, point, source) for point in points(experiment)]
        width, tried = max(2, len(str(len(baselines) + len(made) - 1))), made
    else:
        width, made = DIGITS, []
        tried = [_variant(base, experiment, point, source) for point in extremes(experiment)]
    if len(baselines) + len(tried) > 1:
        for _, baseline, _, variant in [*baselines, *tried]:
            check_metric(variant.model_copy(update={"tune": experiment.tune, "seeds": experiment.seeds}), baseline)
    found = []
    for number, one in enumerate([*baselines, *made]):
        found += _seeded(one, number, width, experiment.seeds)
    for number, point in enumerate(suggested):
        found += suggested_cases(content, experiment, source, number, point)
    return found


def suggested_cases(
    content: files.Content, experiment: Experiment, source: str, number: int, point: dict[str, Any]
) -> list[Case]:
    """Return the cases of a point that a search has suggested, one for each seed.

    Args:
        content: The content of the experiment file, after overrides.
        experiment: The experiment in it.
        source: The name of the file, for messages.
        number: The number of the point.
        point: Its values of the searched keys.
    """
    base, problem = {key: value for key, value in content.items() if key not in OF_A_SWEEP}, ""
    try:
        made = _variant(base, experiment, point, source)
    except UserError as error:
        made, problem = (_label(experiment, point), False, point, _given(experiment)), str(error)
    return _seeded(made, len(experiment.baselines) + number, DIGITS, experiment.seeds, problem)


def refused(case: Case, experiment: Experiment, problem: str) -> Case:
    """Return a suggested case that cannot run.

    Args:
        case: The case, a valid experiment.
        experiment: The experiment with its space.
        problem: Why it cannot run.
    """
    given = _given(experiment).model_copy(update={"seed": case.experiment.seed})
    return replace(case, experiment=given, problem=problem)


def _given(experiment: Experiment) -> Experiment:
    return experiment.model_copy(update={"space": {}, "baselines": (), "seeds": 1})


Made = tuple[str, bool, dict[str, Any], Experiment]  # label, whether it is a baseline, point, experiment


def _seeded(made: Made, number: int, width: int, seeds: int, problem: str = "") -> list[Case]:
    label, baseline, point, variant = made
    group, found = f"{number:0{width}d}-{variant.method.name}", []
    for seed in range(variant.seed, variant.seed + seeds):
        name = group if seeds == 1 else f"{group}-seed{seed}"
        one = variant.model_copy(update={"seed": seed})
        found.append(Case(name, group, label, baseline, point, one, problem))
    return found


def _variant(base: files.Content, experiment: Experiment, point: dict[str, Any], source: str) -> Made:
    variant = files.validate(override(base, settings(experiment.space, point)), f"{source}, space {point}")
    return _label(experiment, point), False, point, variant


def _label(experiment: Experiment, point: dict[str, Any]) -> str:
    label = " ".join(f"{key.rpartition('.')[2]}={_short(value)}" for key, value in point.items())
    return label or experiment.method.name


def _baseline(base: files.Content, experiment: Experiment, method: Method, source: str) -> Made:
    content = base | {"method": method.model_dump(mode="json")}
    if method.pooled:  # trained on all texts in one place: no updates, so no uplink or audits, and no client is absent
        left_out = ("uplink", "audits", "participation")
        content = {key: value for key, value in content.items() if key not in left_out}
        content = _without(content, "training", "dp_sgd")
        content = _without(content, "server", "optimizer", "noise")
        content = _of_largest_rank(content, experiment)
    else:
        content = _fitting(content, experiment, experiment.model_copy(update={"method": method}))
    if not method.shares:
        content = {key: value for key, value in content.items() if key != "uplink"}
        content = _without(content, "server", "optimizer", "noise")
    if method.pooled or not method.shares:  # no updates
        content = {key: value for key, value in content.items() if key != "adversaries"}
        content = _without(content, "server", "absent_rows", "aggregation", "buffer", "secure_aggregation", "weights")
        content = _without(content, "wire", "shuffle", "rows")
        content = _without(content, "privacy", "canaries")
    if not experiment.model_copy(update={"method": method}).shares_table:
        content = _without(content, "server", "absent_rows")
    if method.private(TABLE):
        content = _without(content, "wire", "rows")
    if not method.two_branches:
        content = _of_one_branch(content, experiment)
    if type(method).private is not Method.private:  # no complete model could be selected
        content = _without(content, "evaluation", "select")
    told = method.model_dump(exclude={"name"}, exclude_defaults=True)
    label = " ".join([method.name, *(f"{key}={_short(value)}" for key, value in told.items())])
    return label, True, {}, files.validate(content, source)


def _without(content: files.Content, section: str, *keys: str) -> files.Content:
    """Return the content without some keys of a section."""
    if section not in content:
        return content
    return content | {section: {key: value for key, value in content[section].items() if key not in keys}}


def _of_one_branch(content: files.Content, experiment: Experiment) -> files.Content:
    """Return the content without evaluations of one branch alone."""
    asked = experiment.evaluation.personalize
    if not asked or not (asked.inference != "both" or any(variation.inference for variation in asked.also)):
        return content
    rates = dict.fromkeys(variation.lr_multiplier for variation in asked.also if variation.lr_multiplier is not None)
    changes = {"inference": "both", "also": [{"lr_multiplier": rate} for rate in rates]}
    return override(content, {f"evaluation.personalize.{key}": value for key, value in changes.items()})


def _of_largest_rank(content: files.Content, experiment: Experiment) -> files.Content:
    """Return the content with the largest rank of the clients' adapters in the place of unequal ones."""
    if not experiment.model.ranks:
        return content
    largest = {"model.adapter.lora.ranks": None, "model.adapter.lora.rank": max(experiment.model.ranks)}
    return override(content, largest)


def _fitting(content: files.Content, experiment: Experiment, baseline: Experiment) -> files.Content:
    """Return the content for a baseline.

    Mechanisms and audits of an embedding are left out if it shares none, and audits if they do not apply to it.
    """
    sections: dict[str, Sequence[Mechanism | Audit]] = {"uplink": experiment.uplink, "audits": experiment.audits}
    unfit = {audit.name for audit in experiment.audits if not fits(baseline, audit)}
    if not baseline.shares_table:
        unfit |= {part.name for parts in sections.values() for part in parts if part.needs_table}
    for key, parts in sections.items():
        if any(part.name in unfit for part in parts):
            kept = [written for written, part in zip(content[key], parts, strict=True) if part.name not in unfit]
            content = content | {key: kept}
    return content


def _short(value: Any) -> str:
    """Return a value for a label: ``{clip: {norm: 1}}`` as ``clip(norm=1)``."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    if not isinstance(value, Mapping):
        return str(value)
    name: Any = value.get("name")
    options: Mapping[Any, Any] = {key: one for key, one in value.items() if key != "name"}
    if name is None and len(value) == 1 and isinstance(inner := next(iter(value.values())), Mapping):
        name, options = next(iter(value)), inner
    told = ", ".join(f"{key}={_short(one)}" for key, one in options.items())
    return f"{name or ''}({told})" if told else str(name)
