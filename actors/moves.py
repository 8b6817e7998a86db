"""Where clients live in a trial's actors, and how they move from one to another with their private states."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import ray
from numpy.typing import NDArray

from actors.placement import Dealt, assign

# Clients move if the slowest actor's time falls to this fraction, and by at least these seconds, which a move can cost.
WORTH_MOVING, MOVE_SECONDS = 0.85, 0.1
AT_ONCE = 1 << 28  # bytes of private states that are on their way at a time
Homes = Mapping[int, int] | Dealt
Get = Callable[[list[Any]], list[Any]]


def by_actor(clients: Iterable[int], home: Homes, actors: int) -> list[list[int]]:
    """Return the clients of each actor.

    Args:
        clients: Ids of clients.
        home: The number of each client's actor.
        actors: Number of actors.
    """
    hosted: list[list[int]] = [[] for _ in range(actors)]
    for client in clients:
        hosted[home[client]].append(client)
    return hosted


def estimated(seconds: Mapping[int, float], tokens: NDArray) -> dict[int, float]:
    """Return the seconds of every client's local update: of those that are not known, by the number of its tokens.

    Args:
        seconds: Those that are known.
        tokens: Number of tokens of each client.
    """
    known = max(1, int(tokens[list(seconds)].sum()))
    each = sum(seconds.values()) / known
    return {client: seconds.get(client, each * count) for client, count in enumerate(tokens.tolist())}


def better(seconds: Mapping[int, float], home: Homes, actors: int, block: int) -> list[list[int]] | None:
    """Return the clients of each actor with which the actors' times are even; None if too little is gained by it.

    Args:
        seconds: Seconds of each client's local update.
        home: The number of each client's actor.
        actors: Number of actors.
        block: Clients that stay together.
    """
    new, old = assign(seconds, actors, block), by_actor(seconds, home, actors)
    longest_new, longest_old = (max(sum(seconds[c] for c in m) for m in hosted) for hosted in (new, old))
    return None if longest_new > min(WORTH_MOVING * longest_old, longest_old - MOVE_SECONDS) else new


def move(
    get: Get,
    actors: Sequence[Any],
    leaving: Sequence[Sequence[int]],
    there: Homes,
    objects: Callable[[Sequence[int]], list[ray.ObjectRef]],
) -> None:
    """Move clients. If an actor is lost meanwhile states are lost too: a checkpoint has them.

    Args:
        get: Returns the results of calls.
        actors: The actors.
        leaving: The clients that leave each of them.
        there: The number of each client's actor then.
        objects: Returns the objects with the data of clients.
    """
    calls = [actor.release.remote(members) for actor, members in zip(actors, leaving, strict=True) if members]
    states = dict(chain.from_iterable(part.items() for part in get(calls)))
    arriving = by_actor(states, there, len(actors))
    calls = [
        actor.adopt.remote({client: states[client] for client in members}, *objects(members))
        for actor, members in zip(actors, arriving, strict=True)
        if members
    ]
    get(calls)


def deal(get: Get, actors: Sequence[Any], there: Dealt) -> None:
    """Move the private states of clients on disk, of which every actor has the texts, to their new homes.

    Args:
        get, actors, there: As in ``move``.
    """
    sizes = get([actor.leaving.remote(there, place) for place, actor in enumerate(actors)])
    for leaving in batches(sizes, AT_ONCE):
        move(get, actors, leaving, there, lambda clients: [])


def batches(sizes: Sequence[Mapping[int, int]], most: int) -> Iterator[list[list[int]]]:
    """Yield the clients of each actor that leave it together.

    Args:
        sizes: For each actor the bytes of the clients that leave it.
        most: Most bytes of all that leave together, unless one client has more.
    """
    batch, size = [list[int]() for _ in sizes], 0
    for place, each in enumerate(sizes):
        for client, more in each.items():
            if size and size + more > most:
                yield batch
                batch, size = [list[int]() for _ in sizes], 0
            batch[place].append(client)
            size += more
    if any(batch):
        yield batch
