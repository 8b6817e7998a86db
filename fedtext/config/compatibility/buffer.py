"""Requirements of asynchronous training on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.aggregations import IndividualAggregation
from fedtext.aggregations.lora import LoRA
from fedtext.config.compatibility.aggregation import silent, told
from fedtext.methods.base import Method

if TYPE_CHECKING:
    from fedtext.config.settings import Settings

_KEY = "server.buffer"
_ROUNDS = "clients begin one by one, and not in rounds"


def clock(e: "Settings") -> Iterator[str]:
    """Check that it is known how long clients take, and that nothing else says who takes part."""
    if not e.server.buffer:
        return
    config = e.participation
    if config.pace is None:
        yield f"{_KEY}: it needs to be known how long clients take: set participation.pace, to {{}} for its defaults"
    given = {
        "sampling": config.sampling != "fixed",
        "deadline_s": config.deadline_s,
        "over_selection": config.over_selection > 1,
        "min_clients": config.min_clients > 1,
    }
    for key in (key for key, there in given.items() if there):
        yield f"{_KEY}: {_ROUNDS}, which participation.{key} is for: leave out one of them"
    if config.availability and not config.availability.hour_s:
        yield (
            f"{_KEY}: {_ROUNDS}, by which participation.availability counts hours: set availability.hour_s to the "
            "simulated seconds of an hour"
        )


def methods(e: "Settings") -> Iterator[str]:
    """Check that updates on different parameters can be combined."""
    if not e.server.buffer:
        return
    name = f"method {e.method.name}"
    if why := silent(e):
        yield f"{_KEY}: {name} {why}, and a buffer is of updates: leave it out"
    elif e.method.sends_state or type(e.method).server_step is not Method.server_step:
        yield f"{_KEY}: {name} has a state or a step of its own at the server, defined for rounds: use another method"
    elif type(e.method).shared_in is not Method.shared_in:
        yield f"{_KEY}: {name} shares other parameters in some rounds, and {_ROUNDS}: use another method"
    if isinstance(e.aggregation, LoRA):
        yield f"{_KEY}: aggregation lora combines factors that began alike: leave out one of them"
    if isinstance(e.aggregation, IndividualAggregation) and e.aggregation.keeps_state():
        yield f"{_KEY}: {told(e)} has a state at the server, which is defined for rounds: leave out one of them"


def guarantees(e: "Settings") -> Iterator[str]:
    """Check that no guarantee is asked for that is of rounds."""
    if not e.server.buffer:
        return
    asked = {
        "server.noise": e.server.noise,
        "server.secure_aggregation": e.server.secure_aggregation,
        "privacy.canaries": e.privacy.canaries,
        "wire.shuffle": e.wire.shuffle,
    }
    for key in (key for key, there in asked.items() if there):
        yield f"{_KEY}: {_ROUNDS}, whose updates {key} hides among each other: leave out one of them"


RULES = (clock, methods, guarantees)
