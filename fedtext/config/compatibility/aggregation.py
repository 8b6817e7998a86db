"""Requirements of aggregations on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.aggregations import Aggregation
from fedtext.aggregations.mean import Mean
from fedtext.config.server import MethodsOwn, ServerSGD
from fedtext.methods.base import Method

if TYPE_CHECKING:
    from fedtext.config.settings import Settings


def nothing_combined(e: "Settings") -> Iterator[str]:
    """Check that clients send updates that can be combined."""
    if isinstance(e.server.aggregation, MethodsOwn) or not (why := silent(e)):
        return
    yield (
        f"server.aggregation: method {e.method.name} {why}, so that {e.aggregation.name} has nothing to combine: leave "
        "it out"
    )


def nothing_sent(e: "Settings") -> Iterator[str]:
    """Check that keys on updates and on their sum are not given where there are none."""
    if not (why := silent(e)):
        return
    method = f"method {e.method.name} {why}"
    if e.uplink and not e.method.pooled:  # compatibility/methods.py has pooled methods
        yield f"uplink: {method}, so that {e.uplink[0].name} has nothing to change: leave it out (uplink=[])"
    if e.server.optimizer != ServerSGD() and not e.method.pooled:
        yield f"server.optimizer: {method}, so that {e.server.optimizer.name} has no step to make: leave it out"
    if e.server.weights != "samples":
        yield f"server.weights: {method}, so that there is nothing to weigh: leave it out"
    if e.server.absent_rows != "unchanged" and e.method.pooled:  # compatibility/privacy.py has those that share none
        yield f"server.absent_rows: {method}, so that no client lacks a row: leave it out"


def about_the_mean(e: "Settings") -> Iterator[str]:
    """Check that ``server.weights`` and ``server.absent_rows`` have an effect on the aggregation."""
    if silent(e):
        return
    reads = {"weights": ("samples", e.aggregation.weighted), "absent_rows": ("unchanged", e.aggregation.sums)}
    for key, (default, read) in reads.items():
        value = getattr(e.server, key)
        if value != default and not read:
            yield f"server.{key}: {value} is for means of updates, and {told(e)} is not one: leave it out"


def replaced(e: "Settings") -> Iterator[str]:
    """Check that no other aggregation takes the place of the one that is a method's difference from FedAvg."""
    if isinstance(e.server.aggregation, MethodsOwn) or type(e.method).aggregation is Method.aggregation:
        return
    yield (
        f"server.aggregation: method {e.method.name} has an aggregation of its own, which {e.aggregation.name} would "
        "replace: leave it out, or use method fedavg"
    )


def silent(e: "Settings") -> str:
    """Return why clients of the method send nothing, for a message; empty if they do."""
    if e.method.pooled:
        return "has all data in one place"
    return "" if e.method.shares else "sends no updates"


def is_mean(aggregation: Aggregation) -> bool:
    """Whether updates are added up as they are: a subclass of ``Mean`` may scale each, or read them one by one."""
    return isinstance(aggregation, Mean) and aggregation.sums and not aggregation.scales()


def told(e: "Settings") -> str:
    """Return the name of the aggregation for a message."""
    asked = isinstance(e.server.aggregation, MethodsOwn)
    return f"the {e.aggregation.name} of method {e.method.name}" if asked else f"aggregation {e.aggregation.name}"


RULES = (nothing_sent, nothing_combined, about_the_mean, replaced)
