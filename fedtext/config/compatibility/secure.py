"""Requirements of secure aggregation on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.adversaries import Collusion
from fedtext.aggregations import SumAggregation
from fedtext.config.compatibility.aggregation import silent, told

if TYPE_CHECKING:
    from fedtext.config.settings import Settings

_KEY = "server.secure_aggregation"


def sums(e: "Settings") -> Iterator[str]:
    """Check that the server needs the sum of updates alone."""
    if not e.server.secure_aggregation:
        return
    if why := silent(e):
        yield f"{_KEY}: method {e.method.name} {why}, so that there is no sum: leave it out"
    aggregation = e.aggregation
    if not isinstance(aggregation, SumAggregation):
        yield (
            f"{_KEY}: the server sees no single update, and {told(e)} needs each ({aggregation.secure}): leave out "
            "one of them"
        )
    elif aggregation.scales():
        yield (
            f"{_KEY}: the server sees no single update, and {told(e)} scales each ({aggregation.secure}): use clip in "
            "uplink, or leave out one of them"
        )


def seen_updates(e: "Settings") -> Iterator[str]:
    """Check that nothing else reads the update of one client."""
    if not e.server.secure_aggregation:
        return
    for audit in e.audits:
        if audit.reads_updates:
            yield (
                f"audits: {audit.name} attacks the update of one client, which the server does not see with {_KEY}: "
                "leave out one of them"
            )
    if e.adversaries and isinstance(e.adversaries.attack, Collusion):
        yield (
            f"adversaries.attack: {e.adversaries.attack.name} replaces updates that the server has received, and with "
            f"{_KEY} it sees none: use another attack"
        )


def all_rows(e: "Settings") -> Iterator[str]:
    """Check that updates have the same coordinates, for masks to cancel."""
    if e.server.secure_aggregation and e.shares_table and e.own_rows:
        yield f"{_KEY}: masks are of all rows, and own rows disclose the words of a client: set wire.rows: all"


def beside(e: "Settings") -> Iterator[str]:
    """Check that integers of one range are all that is sent."""
    for mechanism in e.uplink:
        if e.server.secure_aggregation and mechanism.beside:
            yield (
                f"{_KEY}: an update has integers of one range, and {mechanism.name} sends a count beside it: leave out "
                "one of them, or the options of the latter that adapt it"
            )


RULES = (sums, seen_updates, all_rows, beside)
