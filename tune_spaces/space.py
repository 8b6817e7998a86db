"""The space of a sweep: its dimensions, and the points of a grid or at random.

A dimension is a key with its values, or a name with settings of several keys, which have names too::

    space:
      method.lambda1: {grid: [0.0, 0.1]}
      mechanism: {grid: {none: {uplink: []}, local: {uplink: [{clip: {norm: 0.1}}, {gaussian: {sigma: 0.01}}]}}}

A point has one value, or the name of the settings, of each: ``{method.lambda1: 0.1, mechanism: local}``.
"""

import math
import re
from collections.abc import Iterator, Mapping
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
    for name, spec in experiment.space.items():
        check_dimension(name, spec)
        for key in keys_of(name, spec):
            if key.partition(".")[0] not in SCIENCE:
                where = f"space.{name}" if key == name else f"space.{name}, {key}"
                raise UserError(f"{where}: only what is computed can be swept: {', '.join(sorted(SCIENCE))}")
    _check_apart(experiment.space)
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
    if isinstance(values, Mapping) and values and not numbers:
        _check_settings(key, form, values)
        return
    if not isinstance(values, list) or not values:
        raise UserError(f"space.{key}.{form} needs a list of values, not {values!r}")
    if numbers and (len(values) != numbers or not all(map(_is_number, values))):
        raise UserError(f"space.{key}.{form} needs {numbers} numbers, not {values!r}")
    if form == "randint" and not all(float(value).is_integer() for value in values):
        raise UserError(f"space.{key}.{form} needs whole numbers, not {values!r}")
    if form == "quniform" and values[2] <= 0:
        raise UserError(f"space.{key}.{form} needs a step above 0, not {values[2]}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_settings(name: str, form: str, settings: Mapping[Any, Any]) -> None:
    """Raise UserError if a dimension of settings of several keys is not named, or its settings are none."""
    if name in Experiment.model_fields or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise UserError(
            f"space.{name}.{form} has names, for settings of several keys: it needs a name of its own, of letters, "
            "digits, _ and -, that is no section; or write a list of values"
        )
    for chosen, keys in settings.items():
        if not isinstance(chosen, str) or not isinstance(keys, Mapping):
            raise UserError(
                f"space.{name}.{form}.{chosen} needs a text as its name, and keys with their values, such as "
                f"{{uplink: [], server.noise: null}}, not {keys!r}"
            )


def keys_of(name: str, spec: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys of the experiment that a dimension sets."""
    ((_, values),) = spec.items()
    if isinstance(values, Mapping):
        return list(dict.fromkeys(str(key) for keys in values.values() for key in keys))
    return [name]


def values_of(spec: Mapping[str, Any]) -> list[Any]:
    """Return the values of a dimension, or the names of its settings; of a range its numbers."""
    ((_, values),) = spec.items()
    return list(values)


def settings(space: Mapping[str, Mapping[str, Any]], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all keys that a point sets, by dotted key."""
    found: dict[str, Any] = {}
    for name, value in point.items():
        ((_, values),) = space[name].items()
        found |= values[value] if isinstance(values, Mapping) else {name: value}
    return found


def _check_apart(space: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise UserError if settings of several keys set one that another dimension sets, or a part of it, or a dimension
    replaces the section of one before it."""
    keys = {name: keys_of(name, spec) for name, spec in space.items()}
    for place, (name, own) in enumerate(keys.items()):
        if lost := [earlier for earlier in list(keys)[:place] if earlier.startswith(f"{name}.")]:
            raise UserError(
                f"space.{lost[0]} has no effect, since {name} after it replaces the section: put {name} first"
            )
        others = [(other, key) for other, found in keys.items() if other != name for key in found]
        for key in own if own != [name] else []:
            for other, its in others:
                if f"{key}.".startswith(f"{its}.") or f"{its}.".startswith(f"{key}."):
                    raise UserError(f"space.{name} sets {key}, and space.{other} sets {its}: leave one of them out")


def dimension(key: str, spec: dict[str, Any]) -> Any:
    """Return the domain of a dimension: ``{loguniform: [0.001, 1]}`` -> ``tune.loguniform(0.001, 1)``.

    Raises:
        UserError: Nothing can be drawn from it.
    """
    from ray import tune

    ((form, values),) = spec.items()
    if not FORMS[form]:
        values = list(values)
    if form == "grid":
        return tune.grid_search(values)
    if form == "loguniform" and not all(isinstance(bound, int | float) and bound > 0 for bound in values):
        raise UserError(f"space.{key}.{form}: {values!r} cannot be drawn from: both bounds are to be above 0")
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
            ends[key] = list(values)
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
    for values in product(*(values_of(experiment.space[key]) for key in reversed(keys))):
        chosen = dict(zip(reversed(keys), values, strict=True))
        yield {key: chosen[key] for key in experiment.space}


def _plain(value: Any) -> Any:
    """Return a Python number for a numpy number, which Tune may draw: files hold Python's own."""
    return value.item() if hasattr(value, "item") else value
