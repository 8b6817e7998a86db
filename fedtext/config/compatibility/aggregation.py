"""Requirements of aggregations on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.aggregations.attention import AttentionKeys
from fedtext.config.server import MethodsOwn

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


def about_the_mean(e: "Settings") -> Iterator[str]:
    """Check that ``server.weights`` and ``server.absent_rows`` have an effect on the aggregation."""
    reads = {"weights": ("samples", e.aggregation.weighted), "absent_rows": ("unchanged", e.aggregation.sums)}
    for key, (default, read) in reads.items():
        value = getattr(e.server, key)
        if value != default and not read:
            yield f"server.{key}: {value} is for means of updates, and {told(e)} is not one: leave it out"


def own_keys(e: "Settings") -> Iterator[str]:
    """Check that keys of fedatt, which are those of its own aggregation, have an effect."""
    if isinstance(e.server.aggregation, MethodsOwn) or not isinstance(e.method, AttentionKeys):
        return
    for key, field in AttentionKeys.model_fields.items():
        if getattr(e.method, key) != field.default:
            yield (
                f"method.{key} is for the aggregation of {e.method.name} itself, and server.aggregation is "
                f"{e.aggregation.name}: leave out one of them"
            )


def silent(e: "Settings") -> str:
    """Return why clients of the method send nothing, for a message; empty if they do."""
    if e.method.pooled:
        return "has all data in one place"
    return "" if e.method.shares else "sends no updates"


def told(e: "Settings") -> str:
    """Return the name of the aggregation for a message."""
    asked = isinstance(e.server.aggregation, MethodsOwn)
    return f"the {e.aggregation.name} of method {e.method.name}" if asked else f"aggregation {e.aggregation.name}"


RULES = (nothing_combined, about_the_mean, own_keys)
