"""The guarantee of the server's noise, and its errors.

Three kinds of rounds are accounted for. If a client's participations are at least b rounds apart (``apart`` of
``participation``), it has k = ceil(rounds / b) at most. Independent noise then is k Gaussian mechanisms, and correlated
noise one, whose multiplier is that of the whole run. Otherwise rounds have Poisson samples, which amplify.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedtext.accounting import composition
from fedtext.accounting.entry import Entry
from fedtext.accounting.gaussian import FLOATS, ROUNDED, SNAPPED, gaussian_entry
from fedtext.config.noise import Correlated, Optimised, strategy_of
from fedtext.ledger.adaptive_clip import told
from fedtext.ledger.assumptions import OWN_SAMPLES, ROUNDS, UNSEEN, drawn, influences, neighbours
from fedtext.ledger.outside import outside
from fedtext.matrix_noise import Errors, Strategy
from fedtext.matrix_noise.strategy import participations

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

CENTRAL = "server.noise"
SIMULATED = "server.noise.cohort_size"


def noise_multiplier(experiment: "Experiment") -> float:
    """Return the noise multiplier z of ``server.noise``: as given, or the one for ``target_epsilon``.

    Raises:
        UserError: No multiplier gives this epsilon, or dp-accounting is not installed.
    """
    noise = experiment.server.noise
    assert noise is not None
    if noise.multiplier is not None:
        return noise.multiplier
    assert noise.target_epsilon is not None
    fraction, count = composed(experiment, experiment.training.rounds)
    if strategy(experiment):
        count = 1
    return composition.multiplier_for(noise.target_epsilon, fraction, count, noise.delta)


def strategy(experiment: "Experiment") -> Strategy | None:
    """Return the matrix factorisation of correlated noise; None if the noise of rounds is independent."""
    mechanism, apart = experiment.server.noise and experiment.server.noise.mechanism, experiment.participation.apart
    if not isinstance(mechanism, Correlated):
        return None
    assert apart is not None, "or it would have been refused"
    return strategy_of(mechanism, experiment.training.rounds, apart)


def with_coefficients(experiment: "Experiment", kept: Sequence[float]) -> "Experiment":
    """Return an experiment with the coefficients of correlated noise with which its run was begun.

    Args:
        experiment: The experiment. One with coefficients of its own, or another number of them, is returned as it is.
        kept: The coefficients; empty: there is no run.
    """
    noise = experiment.server.noise
    mechanism = noise and noise.mechanism
    if not noise or not isinstance(mechanism, Optimised) or mechanism.coefficients or len(kept) != mechanism.count:
        return experiment
    again = noise.model_copy(update={"mechanism": mechanism.model_copy(update={"coefficients": tuple(kept)})})
    return experiment.model_copy(update={"server": experiment.server.model_copy(update={"noise": again})})


def round_multiplier(experiment: "Experiment") -> float:
    """Return the factor of a round's noise before C^-1: z, with correlated noise times its sensitivity."""
    made = strategy(experiment)
    return noise_multiplier(experiment) * (made.sensitivity() if made else 1.0)


def errors(experiment: "Experiment", alone: float | None = None) -> Errors:
    """Return the errors of the prefix sums of updates of norm 1: standard deviations on each coordinate.

    Args:
        experiment: The experiment, with ``server.noise``.
        alone: Standard deviation of the noise of a round; None: the noise multiplier.
    """
    made, rounds = strategy(experiment), experiment.training.rounds
    z = noise_multiplier(experiment) if alone is None else alone
    if made:
        found = made.errors()
        return Errors(z * found.mean, z * found.max)
    return Errors(z * float(np.sqrt((rounds + 1) / 2)), z * float(np.sqrt(rounds)))


def entries(experiment: "Experiment", clients: int, rounds: int) -> Iterator[Entry]:
    """Yield the entries of the server's noise.

    With ``cohort_size`` M they are of the noise that this run has, a multiplier of z times the expected number of
    clients / M. A further entry has the guarantee of a run with M clients a round, which this one only simulates.

    Args:
        experiment: The experiment, with ``server.noise``.
        clients: Number of clients.
        rounds: Number of rounds after which the guarantees are stated.
    """
    assert experiment.server.noise is not None
    size, z = experiment.server.noise.cohort_size, noise_multiplier(experiment)
    assumptions = _assumptions(experiment, clients, experiment.server.noise.delta)
    share = experiment.participation.expected(clients) / size if size else 1.0
    divided = told(experiment, clients, z, share)
    yield from _of_multiplier(experiment, rounds, z * share, CENTRAL, divided + assumptions)
    if size:
        simulated = f"simulated: of a run with {size} clients a round and this noise, which is not this run; "
        divided = told(experiment, clients, z)
        _, run = _of_multiplier(experiment, rounds, z, SIMULATED, simulated + divided + assumptions)
        yield run


def _of_multiplier(experiment: "Experiment", rounds: int, z: float, name: str, assumptions: str) -> tuple[Entry, Entry]:
    """Return the entries of a client's round and of the run for a noise multiplier.

    Args:
        experiment: The experiment.
        rounds: Number of rounds after which the guarantees are stated.
        z: The noise multiplier.
        name: What the entries are called.
        assumptions: What they rest on.
    """
    assert experiment.server.noise is not None
    delta, made = experiment.server.noise.delta, strategy(experiment)
    if made is None:
        fraction, count = composed(experiment, rounds)
        each = gaussian_entry(name, "client and round", z, fraction, 1, delta, assumptions)
        about = _at_most(experiment, rounds)
        return each, gaussian_entry(name, "run", z, fraction, count, delta, assumptions, about)
    released = min(rounds, made.rounds)
    scale, sensitivity = z * made.sensitivity(), made.sensitivity(released)
    about = f"{experiment.server.noise.mechanism.name}, sensitivity {'' if made.exact else '<= '}{sensitivity:.4g}"
    about += f" to {_at_most(experiment, released)}"
    one = f"{experiment.server.noise.mechanism.name}, sensitivity {made.alone():.4g} to one round of a client"
    each = gaussian_entry(name, "client and round", scale / made.alone(), 1.0, 1, delta, assumptions, one)
    return each, gaussian_entry(name, "run", scale / sensitivity, 1.0, 1, delta, assumptions, about)


def composed(experiment: "Experiment", rounds: int) -> tuple[float, int]:
    """Return the probability of a client to be in a round, and how many rounds are composed: those it can be in."""
    participation = experiment.participation
    if participation.apart is None:
        return participation.fraction, rounds
    return 1.0, participations(rounds, participation.apart)


def _at_most(experiment: "Experiment", rounds: int) -> str:
    """Return how often a client takes part, in words; empty if it may in all rounds."""
    apart = experiment.participation.apart
    if apart is None or experiment.participation.sampling in ("fixed", "poisson"):
        return f"{rounds} rounds"
    count = participations(rounds, apart)
    return f"{count} of {rounds} rounds" + (f", {apart} apart" if count > 1 else "")


def _assumptions(experiment: "Experiment", clients: int, delta: float) -> str:
    planned = experiment.participation.sampling in ("separated", "epochs")
    rests = [neighbours(experiment), drawn(experiment), *influences(experiment, clients)]
    if experiment.participation.apart is None:
        if experiment.privacy.noise == "reproducible":
            rests.append("so are each round's clients, who must be unknown for the sample to amplify the guarantee")
        rests += [OWN_SAMPLES, UNSEEN]
    if planned:
        rests.append("who takes part in which round depends on no client's texts, and amplifies nothing")
    exact = ROUNDED if strategy(experiment) else SNAPPED
    said = "; ".join([*rests, ROUNDS, exact if experiment.privacy.noise == "secret" else FLOATS, outside(experiment)])
    if delta * clients >= 1:
        said += f"; delta is no less than 1 / {clients} clients, which allows the texts of one to be published"
    return said
