"""The space of a sweep: its dimensions, and the points of a grid or at random."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

from fedtext.config.experiment import Experiment
from fedtext.config.limits import TRIALS, excess
from fedtext.errors import UserError
from fedtext.seeding import generator
from fedtext.state.fingerprint import SCIENCE

# The forms of a dimension of the space, as Ray Tune names them, and how many numbers each takes; 0: a list.
FORMS = {"grid": 0, "choice": 0, "uniform": 2, "loguniform": 2, "quniform": 3, "randint": 2}


def check_space(experiment: Experiment) -> None:
    """Raise UserError if a dimension is malformed, its key is not of what is computed, or there are too many points."""
    for key, spec in experiment.space.items():
        check_dimension(key, spec)
    for key in experiment.space:
        if key.partition(".")[0] not in SCIENCE:
            raise UserError(f"space.{key}: only what is computed can be swept: {', '.join(sorted(SCIENCE))}")
    grids = [len(spec["grid"]) for spec in experiment.space.values() if "grid" in spec]
    tune, named = experiment.tune, ["space"] if any(size > 1 for size in grids) else []
    named += [key for key, size in (("tune.samples", tune.samples), ("seeds", experiment.seeds)) if size > 1]
    trials = (tune.samples * math.prod(grids) + len(experiment.baselines)) * experiment.seeds
    if sentence := excess(TRIALS, trials, " or ".join(named) or "baselines"):
        raise UserError(sentence)


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
        made.sample(random_state=generator(0, "space"))  # some wrong bounds are noticed only when a value is drawn
    except (ValueError, TypeError, AssertionError, OverflowError, ZeroDivisionError) as error:
        raise UserError(f"space.{key}.{form}: {values!r} cannot be drawn from ({error})") from error
    return made


def points(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Yield every point of the space: the whole grid, times ``tune.samples`` seeded draws of its random dimensions.

    Raises:
        UserError: A dimension is malformed, or its key is not of what is computed.
    """
    check_space(experiment)
    if not experiment.space:
        yield {}
        return
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


def extremes(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Yield a point for each value of a choice and each bound of a range, the other keys at their first values.

    What no search could use is noticed there before anything runs.
    """
    ends = {}
    for key, spec in experiment.space.items():
        ((form, values),) = spec.items()
        if FORMS[form]:
            low, high = values[:2]
            ends[key] = [low, high - 1 if form == "randint" else high]
        else:
            ends[key] = values
    first = {key: values[0] for key, values in ends.items()}
    for key, values in ends.items():
        for value in values:
            yield first | {key: value}


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


def _plain(value: Any) -> Any:
    """Return a Python number for a numpy number, which Tune may draw: files hold Python's own."""
    return value.item() if hasattr(value, "item") else value
