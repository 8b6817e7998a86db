"""The privacy ledger: the guarantees of an experiment, each with its unit and its assumptions.

All guarantees are user-level: they protect all texts of a client. A local guarantee holds against the server, for any
two data sets of the client. A central guarantee trusts the server, and holds against all who see the shared parameters.

Each mechanism states its own guarantee (``Mechanism.guarantee``) for updates within the bound that the mechanisms
before it leave (``Mechanism.bound``). The ledger combines these without knowing any mechanism by name: a mechanism that
states nothing guarantees nothing, and leaves updates unbounded.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from fedtext.accounting.distributed import Shares
from fedtext.accounting.entry import DELTA, Added, Entry, Measured, Sent
from fedtext.corpora.secrets import KEY as SECRETS
from fedtext.errors import UserError
from fedtext.ledger import assumptions, central, distributed, examples, shuffled, vocabulary
from fedtext.ledger.central import CENTRAL, noise_multiplier
from fedtext.ledger.outside import outside
from fedtext.mechanisms.base import bounds

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment
    from fedtext.mechanisms import Mechanism

__all__ = [
    "CENTRAL",
    "FILE",
    "claimed",
    "format_epsilon",
    "hidden",
    "ledger",
    "noise_multiplier",
    "read",
    "spent",
    "text",
    "with_measured",
]

FILE = "ledger.json"
_OTHERS = (*vocabulary.NAMES, shuffled.SHUFFLED)  # guarantees of something else than the updates that are sent
_OWN_ROWS = "no guarantee: wire.rows: own lets the rows name the client's words"
_AS_THEY_ARE = "no guarantee: updates are sent as they are"
_UNSTATED = "no guarantee: no mechanism of the uplink states one"


def ledger(experiment: "Experiment", coordinates: int, clients: int, rounds: int) -> list[Entry]:
    """Compute all guarantees of a run, and say which texts were planted in its corpus.

    Args:
        experiment: The experiment.
        coordinates: Number of coordinates that a client sends in a round.
        clients: Number of clients.
        rounds: Number of rounds after which the guarantees are stated.

    Returns:
        At least one entry. If nothing is guaranteed, its ``how`` says why.
    """
    planted = experiment.corpus.planted
    said = [Entry(SECRETS, "run", None, 0.0, planted)] if planted else []
    return _guarantees(experiment, coordinates, clients, rounds) + said


def _guarantees(experiment: "Experiment", coordinates: int, clients: int, rounds: int) -> list[Entry]:
    if experiment.method.pooled:
        return [Entry(experiment.method.name, "run", None, 0.0, "no guarantee: all texts lie in one place")]
    if not experiment.method.shares:
        none = Entry(experiment.method.name, "run", None, 0.0, "no guarantee is needed for updates: none is sent")
        return [none, *vocabulary.entries(experiment, clients, ())]
    delta = experiment.server.noise.delta if experiment.server.noise else DELTA
    entries = _local(experiment, Sent(coordinates, rounds, delta), clients)
    if experiment.server.noise:
        made = distributed.grid(experiment, clients, coordinates)
        entries += (
            distributed.entries(experiment, made, clients, rounds)
            if made
            else central.entries(experiment, clients, rounds)
        )
    entries += shuffled.entries(experiment, Sent(coordinates, rounds, delta), clients)
    entries += vocabulary.entries(experiment, clients, entries)
    of_texts = list(examples.entries(experiment, rounds))
    if assumptions.pooled_vectors(experiment):
        # This replaces all guarantees of the run and of a text; the reasons why a mechanism has none remain.
        entries = [entry for entry in entries if entry.unit != "run" or not entry.holds]
        entries.append(Entry("word2vec", "run", None, 0.0, assumptions.POOLED_VECTORS))
        of_texts = [replace(entry, epsilon=None, how=assumptions.POOLED_VECTORS, assumptions="") for entry in of_texts]
    if all(entry.mechanism in _OTHERS for entry in entries):  # nor does the guarantee of a vocabulary cover updates
        why = _UNSTATED if experiment.uplink else _AS_THEY_ARE
        entries = [Entry("uplink", "run", None, 0.0, why), *entries]
    return entries + of_texts


def spent(entries: Sequence[Entry]) -> dict[str, float]:
    """Return the metrics ``epsilon`` and ``delta`` of all rounds together: those of the smallest epsilon.

    A private vocabulary is part of them with ``server.noise``, which has the same adversary. With ``wire.shuffle`` the
    guarantee of shuffled bits counts.

    There is neither without a guarantee. With ``server.noise`` only its guarantee counts: a local one has another
    adversary and other neighbours, and cannot be compared with it. With ``training.dp_sgd`` also ``epsilon_text``, of a
    text.
    """
    of_texts = [entry.epsilon for entry in entries if entry.unit == "text" and entry.epsilon is not None]
    texts = {"epsilon_text": min(of_texts)} if of_texts else {}
    found = claimed(entries)
    first = next((entry for entry in entries if entry.mechanism in (vocabulary.TOGETHER, shuffled.SHUFFLED)), None)
    found = found and (first or found)
    if found is None or found.epsilon is None:
        return texts
    return {"epsilon": found.epsilon, "delta": found.delta} | texts


def claimed(entries: Iterable[Entry]) -> Entry | None:
    """Return the guarantee of updates with the smallest epsilon; with ``server.noise`` its own. None: there is none."""
    runs = [entry for entry in entries if entry.unit == "run" and entry.mechanism not in _OTHERS]
    runs = [entry for entry in runs if entry.mechanism == CENTRAL] or runs
    known = [entry for entry in runs if entry.epsilon is not None]
    return min(known, key=lambda entry: (entry.epsilon, entry.delta), default=None)


def with_measured(entries: Sequence[Entry], measured: Measured) -> list[Entry]:
    """Return the entries with what canaries have measured, beside the guarantee that ``claimed`` returns."""
    beside = claimed(entries)
    return [replace(entry, measured=measured) if entry is beside else entry for entry in entries]


def text(entries: Iterable[Entry]) -> str:
    """Format the entries as the content of ``ledger.json``. What they do not have is left out."""
    written = [asdict(entry) for entry in entries]
    for entry in written:
        for key in ("measured", "added"):
            if entry[key] is None:
                del entry[key]
    return json.dumps(written, indent=1) + "\n"


def read(content: str) -> list[Entry]:
    """Return the entries of what ``text`` returned.

    Raises:
        ValueError, TypeError: It is something else.
    """
    made = []
    for entry in json.loads(content):
        measured, added = entry.pop("measured", None), entry.pop("added", None)
        made.append(
            Entry(
                **entry,
                measured=Measured(**measured) if measured else None,
                added=Added(Shares(**added["shares"]), added["rounds"]) if added else None,
            )
        )
    return made


def hidden(experiment: "Experiment", place: int) -> bool:
    """Whether the mechanisms before this index of the uplink guarantee something, which later ones cannot weaken."""
    front = _chain(experiment.uplink[:place], Sent(1, 1, DELTA))
    return not _names_words(experiment) and any(entry.holds for entry in front)


def _names_words(experiment: "Experiment") -> bool:
    return experiment.shares_table and experiment.own_rows


def _chain(uplink: Sequence["Mechanism"], sent: Sent) -> list[Entry]:
    """Return the entries that mechanisms state, each for the updates that it receives.

    If two mechanisms of one name state guarantees, the stronger one counts. A mechanism without a guarantee is left out
    after one with a guarantee, and if it is one step with the next mechanism (``Mechanism.joins``).
    """
    by_name: dict[str, list[Entry]] = {}
    before = bounds(uplink)
    for place, mechanism in enumerate(uplink):
        following = uplink[place + 1] if place + 1 < len(uplink) else None
        stated = [] if following and following.joins(mechanism) else mechanism.guarantee(before[place], sent)
        if not isinstance(stated, Sequence) or not all(isinstance(entry, Entry) for entry in stated):
            what = f"{type(stated).__name__}, and not a list of Entry"
            raise UserError(f"mechanism {mechanism.name}: guarantee returned {what}")
        holds = any(entry.holds for entry in stated)
        if not holds and any(entry.holds for entries in by_name.values() for entry in entries):
            continue
        known = by_name.get(mechanism.name, [])
        if not any(entry.holds for entry in known) or (holds and _run(stated) <= _run(known)):
            by_name[mechanism.name] = stated or known
    return [entry for entries in by_name.values() for entry in entries]


def _run(entries: Iterable[Entry]) -> float:
    """Return the smallest epsilon of unit "run"; infinity if there is none."""
    found = (entry.epsilon for entry in entries if entry.unit == "run" and entry.epsilon is not None)
    return min(found, default=float("inf"))


def _local(experiment: "Experiment", sent: Sent, clients: int) -> list[Entry]:
    """Return the guarantees of the uplink. With own rows, which disclose a client's words, only those for a single
    coordinate hold."""
    made = []
    for entry in _chain(experiment.uplink, sent):
        if not entry.holds:
            made.append(entry)
        elif entry.unit == "coordinate and round" or not _names_words(experiment):
            rests = [
                assumptions.LOCAL,
                assumptions.drawn(experiment),
                *assumptions.influences(experiment, clients),
                assumptions.ROUNDS,
                entry.assumptions,
                outside(experiment),
            ]
            made.append(replace(entry, assumptions="; ".join(filter(None, rests))))
        elif (refused := Entry(entry.mechanism, "run", None, 0.0, _OWN_ROWS)) not in made:
            made.append(refused)
    return made
