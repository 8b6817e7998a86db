"""Which local updates share a call of an actor."""

import math
from collections.abc import Mapping, Sequence

SECONDS = 0.2  # shorter calls cost too much: each takes up to 10 ms of CPU time for its object, whatever it trains
CALLS = 16  # beyond SECONDS, the local updates of an actor are spread over about this many calls a round
BYTES = 32_000_000  # largest total of the replies to one call


def grouped(
    stacks: Sequence[list[int]], seconds: Mapping[int, float], bytes_up: Mapping[int, int], size: int
) -> list[list[list[int]]]:
    """Group an actor's stacks into calls.

    Fewer calls cost less; after more of them the server has less left to add up when the last one returns. A client
    that has not trained yet is taken to be as slow as the slowest so far, and its payload as large as the largest. In
    the first round, of which neither is known, it is slow, and its payload has the size of the parameters.

    Args:
        stacks: The ids of the clients that train together, in the order of training.
        seconds: Seconds of each client's last local update.
        bytes_up: Bytes of each client's last payload.
        size: Bytes of the parameters.

    Returns:
        The stacks of each call, in the same order.
    """
    slowest, largest = max(seconds.values(), default=math.inf), max(bytes_up.values(), default=size)
    share = math.ceil(len(stacks) / CALLS)
    calls: list[list[list[int]]] = []
    took, sent = 0.0, 0
    for members in stacks:
        more_s = sum(seconds.get(client, slowest) for client in members)
        more = sum(bytes_up.get(client, largest) for client in members)
        short = bool(calls) and (took + more_s <= SECONDS or len(calls[-1]) < share)
        if short and sent + more <= BYTES:
            calls[-1].append(members)
            took, sent = took + more_s, sent + more
        else:
            calls.append([members])
            took, sent = more_s, more
    return calls
