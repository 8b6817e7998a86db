"""The guarantee of bits that reach the server in random order, or as their sum."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fedtext.accounting.entry import Entry, Sent
from fedtext.ledger import assumptions
from fedtext.ledger.outside import outside

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

SHUFFLED = "wire.shuffle"
_SIMULATED = (
    "simulated: no shuffler runs here, and the server process receives the bits of each client; "
    "server.secure_aggregation gives it their sum alone"
)


def least_clients(experiment: "Experiment", clients: int) -> int:
    """Return the least number of clients whose bits a round shuffles; 1 if none is sure.

    Args:
        experiment: The experiment.
        clients: Number of clients that can train.
    """
    participation = experiment.participation
    if participation.complete and participation.on_client_error == "fail":
        return participation.largest(clients)
    return participation.min_clients


def entries(experiment: "Experiment", sent: Sent, clients: int) -> Iterator[Entry]:
    """Yield the guarantee of shuffled bits, with ``wire.shuffle``.

    Args:
        experiment: The experiment.
        sent: What a client sends, and delta.
        clients: Number of clients that can train.
    """
    if not experiment.wire.shuffle or not experiment.uplink:
        return
    assert not (experiment.shares_table and experiment.own_rows), "or it would have been refused"
    least = least_clients(experiment, clients)
    found = experiment.uplink[-1].shuffled(sent, least)
    if found is None:
        return
    rests = [
        f"any other texts of a client in place of its own, against the server, if {least} clients or more take part in "
        "each round and none of the others shows the server its bits",
        "who takes part may be known",
        assumptions.drawn(experiment),
        *assumptions.influences(experiment, clients),
        assumptions.ROUNDS,
        found.assumptions,
        _summed(experiment),
        *assumptions.failing(experiment, clients, sent.rounds, found.delta),
        outside(experiment),
    ]
    yield replace(found, mechanism=SHUFFLED, assumptions="; ".join(filter(None, rests)))


def _summed(experiment: "Experiment") -> str:
    """Return what keeps single bits from the server, unless masks do."""
    secure = experiment.server.secure_aggregation
    if secure is None:
        return _SIMULATED
    return "" if secure.masks else assumptions.WITHOUT_MASKS
