"""Reuse of client actors: the next trial of the same process, on the same share of the cluster, takes them over.

Starting an actor takes seconds, mostly for imports. Tune gives a trial's process and its placement group to
the next trial that asks for the same (``reuse_actors``), so that a sweep starts its processes once.
"""

from typing import Any

import ray
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.client import ClientActor
from actors.patience import HungActorsError
from actors.placement import Plan

# Ray's errors for a lost process (OutOfMemoryError is no RayActorError), and ours for one that hangs.
LOST = (RayActorError, NodeDiedError, WorkerCrashedError, OutOfMemoryError, HungActorsError)
ANSWER_S = 60.0  # seconds after which an actor that does not answer is given up
DRAIN_S = 2.0  # seconds that actors have for what they were asked before one of them was lost
Share = tuple[PlacementGroup | None, int, float, float]  # the group, and number, CPUs and GPUs of its actors
# Actors of this process without a trial, by place; they end with it. None: that one was lost.
_waiting: tuple[Share, list[Any | None]] | None = None


def hire(plan: Plan, group: PlacementGroup | None) -> list[Any]:
    """Return ``plan.actors`` client actors without clients, one in each client bundle of ``group``.

    Actors that ``keep`` or ``salvage`` has left are used if they have the same share of the cluster and answer.
    """
    global _waiting
    kept, _waiting = _waiting, None
    made: list[Any | None] = [None] * plan.actors
    if kept and kept[0] == _share(plan, group):
        made = _answering(kept[1], ANSWER_S)
    elif kept:
        end(kept[1])
    return [actor or _new(plan, group, place) for place, actor in enumerate(made)]


def _new(plan: Plan, group: PlacementGroup | None, place: int) -> Any:
    strategy: Any = "SPREAD"
    if group is not None:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place + 1)
    options = ClientActor.options(  # type: ignore[attr-defined]  # ray.remote's own
        num_cpus=plan.cpus, num_gpus=plan.gpus, scheduling_strategy=strategy
    )
    return options.remote()


def keep(actors: list[Any], plan: Plan, group: PlacementGroup | None) -> None:
    """Leave idle actors to this process's next trial.

    Args:
        actors: The actors, which must be idle.
        plan: The plan that they were hired by.
        group: The placement group that they are in; None: none.
    """
    global _waiting
    assert _waiting is None, "one trial at a time has actors in a process"
    _waiting = _share(plan, group), list(actors)


def salvage(actors: list[Any], plan: Plan, group: PlacementGroup | None) -> None:
    """Leave to this process's next attempt those actors that answer soon, and kill the others: one was lost.

    Args:
        actors, plan, group: As in ``keep``; the actors may be dead, hang, or still do what they were asked.
    """
    keep(_answering(actors, DRAIN_S), plan, group)


def _answering(actors: list[Any | None], seconds: float) -> list[Any | None]:
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


def end(actors: list[Any | None]) -> None:
    """Kill these actors."""
    for actor in actors:
        if actor is not None:
            ray.kill(actor)


def _share(plan: Plan, group: PlacementGroup | None) -> Share:
    return group, plan.actors, plan.cpus, plan.gpus
