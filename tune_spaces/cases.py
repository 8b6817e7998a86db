"""From an experiment with a ``space:`` to the cases of a sweep: its baselines, then every point of the space."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ray import tune
from ray.tune.search.variant_generator import generate_variants

from fedtext import config
from fedtext.audits import Audit
from fedtext.errors import UserError
from fedtext.experiment import Experiment
from fedtext.federation import SCIENCE
from fedtext.mechanisms import Mechanism
from fedtext.seeding import generator

# How a dimension of the space may be written, and the arguments each form takes, in Ray Tune's own words.
FORMS: dict[str, tuple[Any, int]] = {
    "grid": (tune.grid_search, 0),
    "choice": (tune.choice, 0),
    "uniform": (tune.uniform, 2),
    "loguniform": (tune.loguniform, 2),
    "quniform": (tune.quniform, 3),
    "randint": (tune.randint, 2),
}


@dataclass(frozen=True)
class Case:
    """One trial to be: ``id`` names its folder, ``overrides`` the dimensions it differs in."""

    id: str
    label: str
    baseline: bool
    overrides: dict[str, Any]
    experiment: Experiment


def dimension(key: str, spec: dict[str, Any]) -> Any:
    """``{loguniform: [0.001, 1]}`` -> ``tune.loguniform(0.001, 1)``. Raises UserError if it is not one of FORMS."""
    if len(spec) != 1 or next(iter(spec)) not in FORMS:
        raise UserError(f"space.{key}: write one of {', '.join(FORMS)}, such as {{grid: [0.0, 0.01]}}, not {spec}")
    ((form, values),) = spec.items()
    make, arguments = FORMS[form]
    if not isinstance(values, list) or not values:
        raise UserError(f"space.{key}.{form} needs a list of values, not {values!r}")
    if not arguments:
        return make(values)
    if len(values) != arguments or not all(isinstance(value, int | float) for value in values):
        raise UserError(f"space.{key}.{form} needs {arguments} numbers, not {values!r}")
    try:
        made = make(*values)
        made.sample()  # some bounds are found wrong only when something is drawn
    except (ValueError, TypeError, AssertionError, OverflowError, ZeroDivisionError) as error:
        raise UserError(f"space.{key}.{form}: {values!r} cannot be drawn from ({error})") from error
    return made


def points(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Every point of the space: the whole grid, times ``tune.samples`` draws of its random dimensions, seeded."""
    if not experiment.space:
        yield {}
        return
    # Dots would nest in Tune's configuration; its keys are flat here.
    space = {key.replace(".", "/"): dimension(key, spec) for key, spec in experiment.space.items()}
    for key in experiment.space:
        if key.partition(".")[0] not in SCIENCE:
            raise UserError(f"space.{key}: only what is computed can be swept: {', '.join(sorted(SCIENCE))}")
    if experiment.tune.samples > 1 and all("grid" in spec for spec in experiment.space.values()):
        raise UserError(
            "tune.samples repeats the draws of random dimensions, and this space is all grid: leave it at 1 (several "
            "seeds: space.seed: {grid: [0, 1, 2]})"
        )
    draws = generator(experiment.seed, "space")
    for _ in range(experiment.tune.samples):
        for _, variant in generate_variants(space, random_state=draws):
            yield {key.replace("/", "."): _plain(value) for key, value in variant.items()}


def cases(content: config.Content, experiment: Experiment, source: str) -> list[Case]:
    """All cases of a sweep, each a complete experiment without a space of its own.

    Raises UserError if a point of the space is not a valid experiment.
    """
    base = {key: value for key, value in content.items() if key not in ("space", "baselines", "tune")}
    made: list[tuple[str, bool, dict[str, Any], Experiment]] = []
    for method in experiment.baselines:
        chosen = method.model_dump(mode="json")
        content = base | {"method": chosen}
        if method.pooled:  # the row without privacy: nothing is sent, so nothing is done to it, and nobody is away
            absent = ("uplink", "audits", "participation")
            content = {key: value for key, value in content.items() if key not in absent}
        elif not experiment.model_copy(update={"method": method}).shares_table:
            content = _without_the_table(content, experiment)
        made.append((method.name, True, {}, config.validate(content, source)))
    for point in points(experiment):
        variant = config.validate(config.override(base, point), f"{source}, space {point}")
        label = " ".join(f"{key.rpartition('.')[2]}={_short(value)}" for key, value in point.items())
        made.append((label or experiment.method.name, False, point, variant))
    if len(made) > 1:
        for _, _, _, variant in made:
            check_metric(variant.model_copy(update={"tune": experiment.tune}))
    width = max(2, len(str(len(made) - 1)))
    return [
        Case(f"{number:0{width}d}-{variant.method.name}", label, baseline, point, variant)
        for number, (label, baseline, point, variant) in enumerate(made)
    ]


def _without_the_table(content: config.Content, experiment: Experiment) -> config.Content:
    """The experiment's content for a baseline that shares no embedding, without what is about that."""
    sections: dict[str, Sequence[Mechanism | Audit]] = {"uplink": experiment.uplink, "audits": experiment.audits}
    for key, parts in sections.items():
        if any(part.needs_table for part in parts):
            kept = [written for written, part in zip(content[key], parts, strict=True) if not part.needs_table]
            content = content | {key: kept}
    return content


def check_metric(experiment: Experiment) -> None:
    """Raises UserError if a sweep would compare its trials by a metric that none of them has when it is needed."""
    metric, tune = experiment.tune.metric, experiment.tune
    if metric.endswith("_val") and not experiment.corpus.validation:
        raise UserError(
            f"tune.metric: {metric} is read on held-out texts and corpus.validation is 0: set it, to 0.1 for example, "
            f"or sort by {metric.removesuffix('_val')}, which reads the test split"
        )
    if metric.startswith("Ap") and experiment.evaluation.personalize is None:
        raise UserError(f"tune.metric: {metric} needs evaluation.personalize")
    if tune.scheduler == "asha" and tune.grace_rounds > experiment.training.rounds:
        raise UserError(
            f"tune.grace_rounds ({tune.grace_rounds}) is more than training.rounds ({experiment.training.rounds}): "
            "asha would have nothing to stop"
        )
    if tune.scheduler == "asha" and metric.startswith("Ag") and experiment.evaluation.every > 1:
        raise UserError(f"tune.scheduler: asha compares trials every round: set evaluation.every to 1 to read {metric}")
    if metric.startswith("Ap") and tune.scheduler == "asha":
        raise UserError(
            f"tune.scheduler: asha compares trials round by round, and {metric} is read after the last round only: set "
            f"tune.metric to {metric.replace('Ap', 'Ag')} or loss"
        )


def _plain(value: Any) -> Any:
    """Tune may draw numpy numbers; files hold Python's own."""
    return value.item() if hasattr(value, "item") else value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
