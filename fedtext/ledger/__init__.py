"""The privacy ledger: what an experiment guarantees a client, for how much of what it sends, and on which assumptions.

Every figure is of all that a client has (user-level). A local guarantee is towards the server: whatever the client's
texts are, compared with any others. A central one trusts the server, and is towards all who see the shared parameters.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from fedtext.experiment import Experiment
from fedtext.ledger import composition
from fedtext.mechanisms import Clip, Gaussian, Mechanism, Project, Quantize, RandomizedResponse
from fedtext.models.inits import Word2VecInit
from fedtext.server_noise import DELTA

Unit = Literal["number and round", "client and round", "run"]
FILE = "ledger.json"
CENTRAL = "server.noise"

_LOCAL = (
    "of a client that takes part in every round, towards the server, for any other texts in the place of its own; "
    "the server does not know the seed, from which a simulation draws the noise; rounds compose adaptively"
)
_CENTRAL = (
    "with or without a client (add-remove), towards whoever sees the shared parameters of all rounds; the server is "
    "trusted, and so is whoever knows the seed, from which the noise can be drawn again; rounds compose adaptively"
)
_OWN_ROWS = "no guarantee: wire.rows: own lets the rows name the client's words"
_POOLED = "no guarantee: word vectors were trained on all clients' texts"


@dataclass(frozen=True)
class Entry:
    """``epsilon`` of a mechanism at ``delta``, for a unit of what is sent; None: there is none, and ``how`` says why.
    Otherwise ``how`` names the bound, and ``assumptions`` what it rests on."""

    mechanism: str
    unit: Unit
    epsilon: float | None
    delta: float
    how: str
    assumptions: str = ""


def ledger(experiment: Experiment, numbers: int, clients: int, rounds: int) -> list[Entry]:
    """Every guarantee after so many ``rounds`` of an experiment whose clients share this many ``numbers``."""
    if experiment.method.pooled or not experiment.method.shares:
        return []
    delta = _delta(experiment)
    entries = [*_clipped(experiment, rounds, delta), *_flipped(experiment, numbers, rounds, delta)]
    if experiment.server.noise:
        entries += _central(experiment, clients, rounds)
    sources = experiment.model.embedding.sources
    if entries and any(isinstance(source, Word2VecInit) and source.corpus != "unlabeled" for source in sources):
        # In the place of whatever else stands for the run; why a mechanism has no figure of its own stays true.
        entries = [entry for entry in entries if entry.unit != "run" or not entry.assumptions]
        entries.append(Entry("word2vec", "run", None, 0.0, _POOLED))
    return entries


def spent(entries: Iterable[Entry]) -> dict[str, float]:
    """The metrics ``epsilon`` and ``delta`` of all rounds together: the smallest guarantee; empty if there is none.
    With ``server.noise`` it is that one's: a local one is towards another, for other neighbours, and cannot be compared
    with it."""
    runs = [entry for entry in entries if entry.unit == "run"]
    runs = [entry for entry in runs if entry.mechanism == CENTRAL] or runs
    known = [(entry.epsilon, entry.delta) for entry in runs if entry.epsilon is not None]
    if not known:
        return {}
    return {"epsilon": min(epsilon for epsilon, _ in known), "delta": max(delta for _, delta in known)}


def figure(epsilon: float) -> str:
    """As a person reads it: ``5,864,447``, ``9.998``."""
    return f"{epsilon:,.0f}" if epsilon >= 1000 else f"{epsilon:.4g}"


def hidden(experiment: Experiment, name: str) -> bool:
    """Whether what a mechanism of this name reads was hidden by gaussian noise before, from which nothing that follows
    takes anything away."""
    names = [mechanism.name for mechanism in experiment.uplink]
    return not _names_words(experiment) and _multiplier(experiment.uplink[: names.index(name)]) > 0


def text(entries: Iterable[Entry]) -> str:
    """As a file."""
    return json.dumps([asdict(entry) for entry in entries], indent=1) + "\n"


def noise_multiplier(experiment: Experiment) -> float:
    """z of ``server.noise``. Raises UserError if it has to be solved for and cannot be."""
    noise, participation = experiment.server.noise, experiment.participation
    assert noise is not None
    if noise.multiplier is not None:
        return noise.multiplier
    assert noise.target_epsilon is not None
    rounds = experiment.training.rounds
    return composition.multiplier_for(noise.target_epsilon, participation.fraction, rounds, noise.delta)


def _outside(experiment: Experiment) -> str:
    """What a client gives away that no mechanism lies on: whose model is published may depend on it too."""
    chosen = experiment.evaluation.select != "last"
    figures = "figures and with them the choice of the round (evaluation.select)" if chosen else "figures"
    return (
        "; what is given for the vocabulary and word vectors, the number of its texts, its training losses, and its "
        f"evaluation's {figures} are outside of it"
    )


def _delta(experiment: Experiment) -> float:
    return experiment.server.noise.delta if experiment.server.noise else DELTA


def _flipped(experiment: Experiment, numbers: int, rounds: int, delta: float) -> Iterator[Entry]:
    """Randomised response: pure, for each bit by itself; a client's texts may move all of its bits, so all add up."""
    for mechanism in experiment.uplink:
        if isinstance(mechanism, Quantize) and not _responds(experiment) and not hidden(experiment, mechanism.name):
            yield Entry("quantize", "run", None, 0.0, "no guarantee: a bit may be certain")
        if not isinstance(mechanism, RandomizedResponse):
            continue
        name, epsilon = mechanism.name, mechanism.epsilon
        assumptions = _LOCAL + _outside(experiment)
        yield Entry(name, "number and round", epsilon, 0.0, "randomised response", assumptions)
        if _names_words(experiment):
            yield Entry(name, "run", None, 0.0, _OWN_ROWS)
            continue
        each, every = composition.basic(epsilon, numbers), numbers * rounds
        yield Entry(name, "client and round", each, 0.0, f"sum over {numbers:,} numbers", assumptions)
        how = f"sum over {numbers:,} numbers and {rounds} rounds"
        yield Entry(name, "run", composition.basic(epsilon, every), 0.0, how, assumptions)
        best = composition.optimal(epsilon, every, delta)
        yield Entry(name, "run", best, delta, "optimal composition", assumptions)


def _responds(experiment: Experiment) -> bool:
    return any(isinstance(mechanism, RandomizedResponse) for mechanism in experiment.uplink)


def _names_words(experiment: Experiment) -> bool:
    return experiment.shares_table and experiment.own_rows


def _multiplier(uplink: Sequence[Mechanism]) -> float:
    """Of the uplink's gaussian noise; 0 if nothing bounds what it has to hide. Two updates that were clipped to C are
    2 C apart at most; noise on noise adds up, and what comes after it takes nothing away."""
    norm, variance, best = None, 0.0, 0.0
    for mechanism in uplink:
        if isinstance(mechanism, Clip):
            norm, variance = mechanism.norm, 0.0
        elif isinstance(mechanism, Project):
            norm = None
        elif isinstance(mechanism, Gaussian) and norm:
            variance += mechanism.sigma**2
            best = max(best, math.sqrt(variance) / (2 * norm))
    return best


def _clipped(experiment: Experiment, rounds: int, delta: float) -> Iterator[Entry]:
    """Gaussian noise of the uplink."""
    if not any(isinstance(mechanism, Gaussian) for mechanism in experiment.uplink):
        return
    best = _multiplier(experiment.uplink)
    if not best or _names_words(experiment):
        why = "no guarantee: no clip before it bounds an update"
        if any(isinstance(mechanism, Project) for mechanism in experiment.uplink):
            why = "no guarantee: behind project it lies on word vectors, whose size no clip bounds"
        yield Entry("gaussian", "run", None, 0.0, _OWN_ROWS if best else why)
        return
    rho = 1 / (2 * best**2)
    assumptions = (
        f"{_LOCAL} (updates 2 clip.norm apart, rho = {rho:.6g} a round; a quarter of that against an update of zeros)"
        + _outside(experiment)
    )
    yield _noisy("gaussian", "client and round", best, 1.0, 1, delta, assumptions)
    yield _noisy("gaussian", "run", best, 1.0, rounds, delta, assumptions)


def _central(experiment: Experiment, clients: int, rounds: int) -> Iterator[Entry]:
    assert experiment.server.noise is not None
    delta, fraction = experiment.server.noise.delta, experiment.participation.fraction
    assumptions = _CENTRAL + _outside(experiment)
    if delta * clients >= 1:
        assumptions += f"; delta is no less than 1 / {clients} clients, which allows the texts of one to be published"
    z = noise_multiplier(experiment)
    yield _noisy(CENTRAL, "client and round", z, fraction, 1, delta, assumptions)
    yield _noisy(CENTRAL, "run", z, fraction, rounds, delta, assumptions)


def _noisy(
    name: str, unit: Unit, multiplier: float, fraction: float, rounds: int, delta: float, assumptions: str
) -> Entry:
    if not composition.available():
        return Entry(name, unit, None, delta, f"not computed: {composition.INSTALL}", assumptions)
    epsilon = composition.sampled_gaussian(multiplier, fraction, rounds, delta)
    how = f"gaussian, noise multiplier {multiplier:.4g}"
    if fraction < 1:
        how += f", Poisson samples of {fraction:g}"
    return Entry(name, unit, epsilon, delta, how + (f", {rounds} rounds" if unit == "run" else ""), assumptions)
