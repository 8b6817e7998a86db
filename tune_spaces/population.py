"""Population-based training (Jaderberg et al. 2017): a population of trials exchanges its parameters while it trains.

At the end of each generation the worst members continue from the parameters of the best ones, with their values of the
searched keys, each changed a little. Here a generation ends for all members before the next one begins, and all draws
come from the seed: the same experiment gives the same population on any cluster.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedtext.aggregations import IndividualAggregation
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.methods import Method
from fedtext.metrics import find
from fedtext.seeding import generator
from fedtext.state.fingerprint import fixed_length
from tune_spaces.space import FORMS, check_space, keys_of

# Besides a method's own numbers. Others would change what is trained, or from which texts.
CHANGING = (
    "training.optimizer.lr",
    "training.optimizer.weight_decay",
    "training.optimizer.momentum",
    "training.optimizer.clip_norm",
    "training.local_epochs",
    "server.optimizer.lr",
)
FACTORS = (0.8, 1.2)  # by which a number is changed
DRAWS = 20  # of a donor and its changed values, until no other member goes on as the same


@dataclass(frozen=True)
class Exploit:
    """A member that continues from another one.

    Attributes:
        member: The number of the member.
        donor: The number of the member whose parameters and records it takes over.
        point: Its new values of the searched keys.
    """

    member: int
    donor: int
    point: dict[str, Any]


def check_population(experiment: Experiment) -> None:
    """Raise UserError if the keys of the space cannot change during a run, or a run's claims would not hold then."""
    tune, key = experiment.tune, "tune.scheduler: pbt"
    check_space(experiment)
    if tune.samples < 4 or all("grid" in spec for spec in experiment.space.values()):
        raise UserError(f"{key} trains a population: set tune.samples to 4 or more draws of a space with ranges")
    for name, spec in experiment.space.items():
        if "grid" in spec:
            raise UserError(f"space.{name}.grid: {key} draws its population at random: write choice, or a range")
        if problem := next(filter(None, (_fixed(experiment, one) for one in keys_of(name, spec))), ""):
            raise UserError(f"space.{name}: {key} changes keys during a run, and {problem}")
    noisy = experiment.server.noise or experiment.training.dp_sgd
    if noisy or any(one.randomises for one in experiment.uplink) or experiment.privacy.noise == "secret":
        raise UserError(
            f"{key} mixes the rounds of several experiments in one run, and the privacy ledger and the noise's key "
            "are of one: leave out the noise, or use another search"
        )
    if why := fixed_length(experiment):
        raise UserError(f"{key} lets trials go on from the rounds of others: {why}")
    described = find(tune.metric)
    assert described is not None  # all of Sorting is
    steps = {"evaluation.every": experiment.evaluation.every, "checkpoint.every": experiment.checkpoint.every}
    if described.when == "every round":
        del steps["evaluation.every"]
    for name, every in steps.items():
        if tune.interval % every:
            raise UserError(f"tune.interval ({tune.interval}) has to be a multiple of {name} ({every})")
    if tune.interval >= experiment.training.rounds:
        raise UserError(
            f"tune.interval ({tune.interval}) leaves no second generation in training.rounds "
            f"({experiment.training.rounds}): lower it"
        )


def _fixed(experiment: Experiment, key: str) -> str:
    """Return why a key cannot change during a run; empty if it can."""
    if key in CHANGING:
        return ""
    section, _, name = key.partition(".")
    if section == "method" and name in {n for n, value in experiment.method if isinstance(value, float)}:
        kind = type(experiment.method)
        own = experiment.method.aggregation  # the method's numbers may be in what it keeps
        kept = isinstance(own, IndividualAggregation) and own.keeps_state()
        if kind.client_state is Method.client_state and kind.server_state is Method.server_state and not kept:
            return ""
        return (
            f"the state that {experiment.method.name} keeps depends on it: search {' or '.join(CHANGING[:1])} instead"
        )
    return f"this one cannot: use one of {', '.join(CHANGING)}, or a number of the method"


def exploits(
    experiment: Experiment, points: Mapping[int, Mapping[str, Any]], scores: Mapping[int, float], generation: int
) -> list[Exploit]:
    """Return which members continue from others after a generation.

    The worst ``tune.quantile`` of the population continue from members drawn from as many best ones. What would make
    two members the same, parameters and values, is drawn again: they would stay so.

    Args:
        experiment: The experiment with its space.
        points: The values of the searched keys of each member.
        scores: The metric of each member that has not failed; not finite counts as worst.
        generation: The number of the generation that ended, from 1.
    """
    sign = 1 if experiment.tune.direction == "max" else -1
    ranked = sorted(scores, key=lambda member: (-_finite(sign * scores[member]), member))
    count = min(math.ceil(experiment.tune.quantile * len(ranked)), len(ranked) // 2)
    draws, found = generator(experiment.seed, "population", generation), []
    taken = [(donor, dict(points[donor])) for donor in ranked[:count]]
    for member in ranked[len(ranked) - count :]:
        for _ in range(DRAWS):
            donor = ranked[int(draws.integers(count))]
            point = {key: _changed(experiment.space[key], value, draws) for key, value in points[donor].items()}
            if (donor, point) not in taken:
                break
        taken.append((donor, point))
        found.append(Exploit(member, donor, point))
    return found


def _finite(score: float) -> float:
    return score if math.isfinite(score) else -math.inf


def _changed(spec: Mapping[str, Any], value: Any, draws: Any) -> Any:
    """Return a value near the one given: a number times one of FACTORS within its range, or the next choice."""
    ((form, values),) = spec.items()
    side = int(draws.integers(2))
    if not FORMS[form]:
        values = list(values)
        at = values.index(value) + (1 if side else -1)
        return values[min(max(at, 0), len(values) - 1)]
    low, high = values[0], values[1] - (form == "randint")
    new = min(max(value * FACTORS[side], low), high)
    if form == "randint":
        return min(max(round(new) if round(new) != value else value + (1 if side else -1), low), high)
    return low + round((new - low) / values[2]) * values[2] if form == "quniform" else new
