"""Requirements of canary clients on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.accounting.entry import DELTA, Sent
from fedtext.config.compatibility.aggregation import silent
from fedtext.mechanisms.base import bounds
from fedtext.mechanisms.clip import Clip

if TYPE_CHECKING:
    from fedtext.config.settings import Settings

_KEY = "privacy.canaries"


def claimed(e: "Settings") -> Iterator[str]:
    """Check that there is a guarantee to compare with."""
    if not e.privacy.canaries:
        return
    if why := silent(e):
        yield f"{_KEY}: method {e.method.name} {why}, so that no canary would be seen: leave it out"
    one = Sent(1, 1, DELTA)
    stated = (made.guarantee(before, one) for made, before in zip(e.uplink, bounds(e.uplink), strict=False))
    if not e.server.noise and not any(entry.holds for entries in stated for entry in entries):
        yield (
            f"{_KEY}: nothing in this experiment guarantees an epsilon that could be measured: set server.noise, or a "
            "mechanism of uplink with a guarantee, or leave it out"
        )


def seen(e: "Settings") -> Iterator[str]:
    """Check that canaries can take part."""
    if not e.privacy.canaries:
        return
    if any(isinstance(mechanism, Clip) and mechanism.adaptive for mechanism in e.uplink):
        yield f"{_KEY}: clip.adaptive follows the norms of updates, and canaries would raise it: leave out one of them"
    if e.wire.shuffle:
        yield (
            f"{_KEY}: a canary's bits are seen with its name, and the epsilon of wire.shuffle is of bits without it: "
            "leave one of them out"
        )
    if e.shares_table and e.own_rows:
        yield f"{_KEY}: canaries have no words, and own rows are those of a client's words: set wire.rows: all"


RULES = (claimed, seen)
