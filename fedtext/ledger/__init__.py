"""The privacy ledger: what an experiment guarantees a client, for how much of what it sends, and on which assumptions.

Every figure is of all that a client has (user-level). A local guarantee is towards the server: whatever the client's
texts are, compared with any others. A central one trusts the server, and is towards all who see the shared parameters.

Each mechanism states its own guarantee (``Mechanism.guarantee``) for updates of the size that the mechanisms before it
leave (``Mechanism.bound``). The ledger puts these together and knows no mechanism by name: one that states nothing
guarantees nothing, and leaves an update that nothing bounds.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from fedtext.accounting import composition
from fedtext.accounting.entry import DELTA, Entry, Sent
from fedtext.accounting.gaussian import FLOATS, gaussian_entry
from fedtext.ledger.outside import outside
from fedtext.mechanisms.base import bounds
from fedtext.models.inits import Word2VecInit

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment
    from fedtext.mechanisms import Mechanism

FILE = "ledger.json"
CENTRAL = "server.noise"

_LOCAL = "of a client that takes part in every round, towards the server, for any other texts in the place of its own"
_CENTRAL = (
    "with or without a client (add-remove), towards anyone who sees the shared parameters of all rounds; the server is "
    "trusted"
)
_ROUNDS = "rounds compose adaptively; other runs on the same texts, such as the trials of a sweep, are not counted"
_SIMULATED = (
    "simulated: the noise is drawn from the seed and the experiment, and whoever knows both, as the server here does, "
    "can draw it again; privacy.noise: secret draws it from the operating system"
)
_SECRET = (
    "the noise is drawn from the operating system's entropy; its key lies with the run's state (noise.key), and "
    "whoever can read it can remove the noise"
)
_OWN_ROWS = "no guarantee: wire.rows: own lets the rows name the client's words"
_POOLED_VECTORS = "no guarantee: word vectors were trained on all clients' texts"
_AS_THEY_ARE = "no guarantee: updates are sent as they are"
_UNSTATED = "no guarantee: no mechanism of the uplink states one"


def ledger(experiment: "Experiment", coordinates: int, clients: int, rounds: int) -> list[Entry]:
    """Every guarantee of a run.

    Args:
        experiment: What is run.
        coordinates: Number of coordinates that a client shares.
        clients: Number of clients.
        rounds: Rounds after which the guarantees are stated.

    Returns:
        At least one entry. Where nothing is guaranteed, its ``how`` says so.
    """
    if experiment.method.pooled:
        return [Entry(experiment.method.name, "run", None, 0.0, "no guarantee: all texts lie in one place")]
    if not experiment.method.shares:
        return [Entry(experiment.method.name, "run", None, 0.0, "no guarantee is needed for updates: none is sent")]
    delta = experiment.server.noise.delta if experiment.server.noise else DELTA
    entries = _local(experiment, Sent(coordinates, rounds, delta))
    if experiment.server.noise:
        entries += _central(experiment, clients, rounds)
    sources = experiment.model.embedding.sources
    if any(isinstance(source, Word2VecInit) and source.corpus != "unlabeled" for source in sources):
        # In the place of all other entries of the run; why a mechanism has no epsilon of its own stays true.
        entries = [entry for entry in entries if entry.unit != "run" or not entry.holds]
        entries.append(Entry("word2vec", "run", None, 0.0, _POOLED_VECTORS))
    return entries or [Entry("uplink", "run", None, 0.0, _UNSTATED if experiment.uplink else _AS_THEY_ARE)]


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


def text(entries: Iterable[Entry]) -> str:
    """As a file."""
    return json.dumps([asdict(entry) for entry in entries], indent=1) + "\n"


def noise_multiplier(experiment: "Experiment") -> float:
    """z of ``server.noise``. Raises UserError if it has to be solved for and cannot be."""
    noise, participation = experiment.server.noise, experiment.participation
    assert noise is not None
    if noise.multiplier is not None:
        return noise.multiplier
    assert noise.target_epsilon is not None
    rounds = experiment.training.rounds
    return composition.multiplier_for(noise.target_epsilon, participation.fraction, rounds, noise.delta)


def hidden(experiment: "Experiment", place: int) -> bool:
    """Whether the mechanisms in front of this place of the uplink guarantee something, from which what follows takes
    nothing away."""
    front = _chain(experiment.uplink[:place], Sent(1, 1, DELTA))
    return not _names_words(experiment) and any(entry.holds for entry in front)


def _names_words(experiment: "Experiment") -> bool:
    return experiment.shares_table and experiment.own_rows


def _chain(uplink: Sequence["Mechanism"], sent: Sent) -> list[Entry]:
    """Return the entries that mechanisms state, each for the updates that reach it.

    Of two that state a guarantee under one name the stronger one counts. One that guarantees nothing is left out behind
    one that does, and where the next one replaces it (``Mechanism.joins``).
    """
    by_name: dict[str, list[Entry]] = {}
    before = bounds(uplink)
    for place, mechanism in enumerate(uplink):
        following = uplink[place + 1] if place + 1 < len(uplink) else None
        stated = [] if following and following.joins(mechanism) else mechanism.guarantee(before[place], sent)
        holds = any(entry.holds for entry in stated)
        if not holds and any(entry.holds for entries in by_name.values() for entry in entries):
            continue
        known = by_name.get(mechanism.name, [])
        if not any(entry.holds for entry in known) or (holds and _run(stated) <= _run(known)):
            by_name[mechanism.name] = stated or known
    return [entry for entries in by_name.values() for entry in entries]


def _run(entries: Iterable[Entry]) -> float:
    """The smallest epsilon of a run."""
    found = (entry.epsilon for entry in entries if entry.unit == "run" and entry.epsilon is not None)
    return min(found, default=float("inf"))


def _local(experiment: "Experiment", sent: Sent) -> list[Entry]:
    """The guarantees of the uplink. Of own rows, which name a client's words, only those of a single coordinate."""
    made = []
    for entry in _chain(experiment.uplink, sent):
        if not entry.holds:
            made.append(entry)
        elif entry.unit == "coordinate and round" or not _names_words(experiment):
            rests = [_LOCAL, _drawn(experiment), _ROUNDS, entry.assumptions, outside(experiment)]
            made.append(replace(entry, assumptions="; ".join(filter(None, rests))))
        elif (refused := Entry(entry.mechanism, "run", None, 0.0, _OWN_ROWS)) not in made:
            made.append(refused)
    return made


def _drawn(experiment: "Experiment") -> str:
    return _SIMULATED if experiment.privacy.noise == "reproducible" else _SECRET


def _central(experiment: "Experiment", clients: int, rounds: int) -> Iterator[Entry]:
    assert experiment.server.noise is not None
    delta, fraction = experiment.server.noise.delta, experiment.participation.fraction
    rests = [_CENTRAL, _drawn(experiment), _ROUNDS, FLOATS, outside(experiment)]
    if fraction < 1 and experiment.privacy.noise == "reproducible":
        rests.insert(2, "so are each round's clients, who have to be unknown for the sample to amplify the guarantee")
    assumptions = "; ".join(rests)
    if delta * clients >= 1:
        assumptions += f"; delta is no less than 1 / {clients} clients, which allows the texts of one to be published"
    z = noise_multiplier(experiment)
    yield gaussian_entry(CENTRAL, "client and round", z, fraction, 1, delta, assumptions)
    yield gaussian_entry(CENTRAL, "run", z, fraction, rounds, delta, assumptions)
