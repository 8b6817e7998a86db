"""How long the server waits for client actors: a multiple of what they took before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

TIMES = 10.0
LEAST_S = 1.0  # what a call is expected to take if it took less before


@dataclass
class Measured:
    """Seconds that the calls of a trial's actors took, in all its attempts.

    Attributes:
        updates: Seconds of each client's last local update.
        calls: Seconds of the last call of each kind.
    """

    updates: dict[int, float] = field(default_factory=dict)
    calls: dict[str, float] = field(default_factory=dict)

    def took(self, kind: str, seconds: float) -> None:
        """Note what a call of a kind took."""
        self.calls[kind] = max(LEAST_S, seconds)


class HungActorsError(RuntimeError):
    """Client actors have not returned long after they should have: they are given up, as if they had died."""


def allowed(expected_s: float | None, hang_s: float, timeout_s: float) -> float:
    """Return the seconds to wait.

    Args:
        expected_s: Seconds that it took before; None: that is not known.
        hang_s: Seconds beyond ``TIMES`` of these (``resources.hang_timeout_s``).
        timeout_s: The most that it waits (``resources.round_timeout_s``).
    """
    return timeout_s if expected_s is None else min(timeout_s, hang_s + TIMES * expected_s)


def expected(seconds: Mapping[int, float], members: Iterable[Iterable[int]]) -> float | None:
    """Return the seconds of the slowest actor's local updates; None: none has been measured.

    Args:
        seconds: Seconds of each client's last local update; another client's are taken to be those of the slowest.
        members: The clients of each actor.
    """
    if not seconds:
        return None
    most = max(seconds.values())
    return max(sum(seconds.get(client, most) for client in clients) for clients in members)


def told(names: list[str]) -> str:
    """Return some of the clients' names, for a message."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{rest}"
