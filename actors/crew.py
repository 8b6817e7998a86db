"""Reuse of client actors: the next trial of the same process, on the same share of the cluster, takes them over.

Starting an actor takes seconds, mostly for imports. Tune gives a trial's process and its placement group to
the next trial that asks for the same (``reuse_actors``), so that a sweep starts its processes once.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    WorkerCrashedError,
)
from ray.util import placement_group_table
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.client import ClientActor
from actors.patience import HungActorsError
from actors.placement import Plan

# Ray's errors for a lost process (OutOfMemoryError is no RayActorError), or for a result of it that was lost before it
# was fetched, and ours for one that hangs.
LOST = (RayActorError, NodeDiedError, WorkerCrashedError, OutOfMemoryError, ObjectLostError, HungActorsError)
ANSWER_S = 60.0  # seconds after which an actor that does not answer is given up
START_TIMEOUT_S = 600.0  # a node may have to be started and its environment installed first
RETURN_S = 10.0  # seconds that a bundle whose node was lost has to find another one
LOOK_S = 1.0  # seconds between two looks at the places of actors that start
AGAIN_S = 60.0  # seconds until another actor is started at a place where one could not
DRAIN_S = 2.0  # seconds that actors have for what they were asked before one of them was lost
Share = tuple[PlacementGroup | None, int, float, float]  # the group, and number, CPUs and GPUs of its actors
# Actors of this process without a trial, by place; they end with it. None: that one was lost.
_waiting: tuple[Share, list[Any | None]] | None = None


@dataclass
class Newcomers:
    """Actors that start on nodes that have joined.

    Args:
        begin: Makes the first call of a new actor, after which it is one of the trial's.

    Attributes:
        starting: The actors by place, each with this call.
        later: By place, when an actor may be started again where one could not.
    """

    begin: Callable[[Any], ray.ObjectRef]
    starting: dict[int, tuple[Any, ray.ObjectRef]] = field(default_factory=dict)
    later: dict[int, float] = field(default_factory=dict)

    def end(self) -> None:
        """Kill these actors."""
        end([actor for actor, _ in self.starting.values()])


class NoPlaceError(RuntimeError):
    """No client actor of a trial has a node: it was lost, and no other one has room."""


def hire(
    plan: Plan,
    group: PlacementGroup | None,
    later: dict[int, float] | None = None,
    patience_s: float = START_TIMEOUT_S,
) -> list[Any | None]:
    """Return ``plan.actors`` client actors without clients, one in each client bundle of ``group``.

    Actors that ``keep`` or ``salvage`` has left are used if they have the same share of the cluster and answer. A
    bundle of a node that was lost has no actor (None) if no other node has room for it, as long as another bundle has
    one. ``fill`` takes it in later.

    Args:
        plan: The trial's plan.
        group: Its placement group; None: there is none.
        later: Receives, by place, when another actor may be started where one could not (``Newcomers.later``).
        patience_s: Seconds within which an actor has to start.

    Raises:
        NoPlaceError: No bundle has a node.
        TimeoutError: An actor that has its place has not started within this time.
    """
    global _waiting
    kept, _waiting = _waiting, None
    made: list[Any | None] = [None] * plan.actors
    if kept and kept[0] == _share(plan, group):
        made = _answering(kept[1], ANSWER_S)
    elif kept:
        end(kept[1])
    known = placed(plan, group) if any(made) else range(plan.actors)
    starting = {place: _new(plan, group, place) for place in known if made[place] is None}
    try:
        return _started(made, starting, plan, group, {} if later is None else later, patience_s)
    except BaseException:  # those that did start would hold their share of the cluster
        end([*made, *starting.values()])
        raise


def _started(
    made: list[Any | None],
    starting: dict[int, Any],
    plan: Plan,
    group: PlacementGroup | None,
    later: dict[int, float],
    patience_s: float,
) -> list[Any | None]:
    """Wait for actors to start. Those that die meanwhile, or whose bundle stays without a node, are given up while
    there are others: a node may have been lost, and Ray have found out only now. Those that cannot start are too.

    Args:
        made: The actors that run, by place.
        starting: Those that start.
        plan, group, later, patience_s: As in ``hire``.
    """
    calls = {actor.__ray_ready__.remote(): place for place, actor in starting.items()}
    begin, homeless = time.monotonic(), dict[int, float]()  # since when a place is known to have no node
    while calls:
        done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=LOOK_S)
        for call in done:
            place = calls.pop(call)
            actor = starting.pop(place)
            try:
                ray.get(call)
            except RayError as error:  # of a node that was lost, or that cannot install our code
                if not starting and not any(made):
                    raise
                _put_off(place, error, later)
            else:
                made[place] = actor
        now, there = time.monotonic(), set(placed(plan, group)) if calls else set()
        homeless = {place: homeless.get(place, now) for place in starting if place not in there}
        given_up = [place for place, since in homeless.items() if now - since > RETURN_S]
        if starting and len(given_up) == len(starting) and not any(made):
            raise NoPlaceError("the nodes of its client actors were lost, and no other node has room for one")
        end([starting.pop(place) for place in given_up if any(made)])
        calls = {call: place for call, place in calls.items() if place in starting}
        if calls and now - begin > patience_s:
            raise TimeoutError(
                f"it took longer than {patience_s:g} s to start the client actors; `ray status` shows what is free"
            )
    return made


def fill(
    actors: Sequence[Any | None], newcomers: Newcomers, plan: Plan, group: PlacementGroup | None
) -> dict[int, tuple[Any, Any]]:
    """Return new actors, by place, for the places without one whose bundle has a node again.

    Nothing waits for them: a later call returns those that have not started yet, and replaces those that have died
    meanwhile, for example with their node. Where one cannot start, since its node cannot install or run our code, the
    trial goes on without it, and another one is tried after ``AGAIN_S``.

    Args:
        actors: What ``hire`` returned.
        newcomers: Those that start. They are changed.
        plan, group: As in ``hire``.

    Returns:
        Each actor with the result of its first call.
    """
    starting, later, now = newcomers.starting, newcomers.later, time.monotonic()
    there = set(placed(plan, group)) if None in actors else set()
    for place in sorted(there - set(starting)):
        if actors[place] is None and later.get(place, now) <= now:
            actor = _new(plan, group, place)
            starting[place] = actor, newcomers.begin(actor)
    calls = [call for _, call in starting.values()]
    done, _ = ray.wait(calls, num_returns=len(calls), timeout=0) if calls else ([], [])
    found = dict[int, tuple[Any, Any]]()
    for place, (actor, call) in [each for each in starting.items() if each[1][1] in done]:
        del starting[place]
        try:
            found[place] = actor, ray.get(call)
        except RayError as error:
            end([actor])
            _put_off(place, error, later)
    return found


def _put_off(place: int, error: Exception, later: dict[int, float]) -> None:
    """Say why an actor could not start, and note when another one may be started at its place.

    One that was lost, as with its node, could start: it is replaced as soon as its place has a node, and the loss is
    said elsewhere.
    """
    if not isinstance(error, LOST):
        later[place] = time.monotonic() + AGAIN_S
        why = str(error).strip().rpartition("\n")[2]
        logging.getLogger(__name__).warning("client actor %d cannot start, the others go on: %s", place + 1, why)


def placed(plan: Plan, group: PlacementGroup | None) -> Sequence[int]:
    """Return the places of client actors whose bundle has a node."""
    if group is None:
        return range(plan.actors)
    nodes: Mapping[int, str] = placement_group_table(group)["bundles_to_node_id"]
    return [place for place in range(plan.actors) if nodes.get(place + 1)]


def _new(plan: Plan, group: PlacementGroup | None, place: int) -> Any:
    strategy: Any = "SPREAD"
    if group is not None:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place + 1)
    options = ClientActor.options(  # type: ignore[attr-defined]  # ray.remote's own
        num_cpus=plan.cpus, num_gpus=plan.gpus, scheduling_strategy=strategy
    )
    return options.remote()


def keep(actors: Sequence[Any | None], plan: Plan, group: PlacementGroup | None) -> None:
    """Leave idle actors to this process's next trial.

    Args:
        actors: The actors by place, which must be idle.
        plan: The plan that they were hired by.
        group: The placement group that they are in; None: none.
    """
    global _waiting
    assert _waiting is None, "one trial at a time has actors in a process"
    _waiting = _share(plan, group), list(actors)


def salvage(actors: Sequence[Any | None], plan: Plan, group: PlacementGroup | None) -> None:
    """Leave to this process's next attempt those actors that answer soon, and kill the others: one was lost.

    Args:
        actors, plan, group: As in ``keep``; the actors may be dead, hang, or still do what they were asked.
    """
    keep(_answering(actors, DRAIN_S), plan, group)


def _answering(actors: Sequence[Any | None], seconds: float) -> list[Any | None]:
    """Return those actors, by place, that have done what they were asked within these seconds, and kill the others."""
    calls = {actor.__ray_ready__.remote(): actor for actor in actors if actor is not None}
    done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=seconds) if calls else ([], [])
    sound = [calls[call] for call in done if _succeeded(call)]
    end([actor for actor in actors if actor not in sound])
    return [actor if actor in sound else None for actor in actors]


def _succeeded(call: ray.ObjectRef) -> bool:
    try:
        ray.get(call)
    except LOST:
        return False
    return True


def end(actors: Sequence[Any | None]) -> None:
    """Kill these actors."""
    for actor in actors:
        if actor is not None:
            ray.kill(actor)


def _share(plan: Plan, group: PlacementGroup | None) -> Share:
    return group, plan.actors, plan.cpus, plan.gpus
