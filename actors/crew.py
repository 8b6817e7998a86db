"""Reuse of client actors: the next trial of the same process, on the same share of the cluster, takes them over.

Starting an actor takes seconds, mostly for imports. Tune gives a trial's process and its placement group to
the next trial that asks for the same (``reuse_actors``), so that a sweep starts its processes once.
"""

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.client import ClientActor
from actors.patience import HungActorsError
from actors.placement import Plan

# Ray's errors for a lost process (OutOfMemoryError is no RayActorError), and ours for one that hangs.
LOST = (RayActorError, NodeDiedError, WorkerCrashedError, OutOfMemoryError, HungActorsError)
ANSWER_S = 60.0  # seconds after which an actor that does not answer is given up
Share = tuple[PlacementGroup | None, int, float, float]  # the group, and number, CPUs and GPUs of its actors
_waiting: tuple[Share, list[Any]] | None = None  # actors of this process without a trial; they end with it


def hire(plan: Plan, group: PlacementGroup | None) -> list[Any]:
    """Return ``plan.actors`` client actors without clients, one in each client bundle of ``group``.

    Actors that ``keep`` has left are used if they have the same share of the cluster and all answer.
    """
    global _waiting
    kept, _waiting = _waiting, None
    if kept and kept[0] == _share(plan, group) and _alive(kept[1]):
        return kept[1]
    if kept:
        end(kept[1])
    made = []
    for place in range(plan.actors):
        strategy: Any = "SPREAD"
        if group is not None:
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place + 1)
        options = ClientActor.options(  # type: ignore[attr-defined]  # ray.remote's own
            num_cpus=plan.cpus, num_gpus=plan.gpus, scheduling_strategy=strategy
        )
        made.append(options.remote())
    return made


def keep(actors: list[Any], plan: Plan, group: PlacementGroup | None) -> None:
    """Leave idle actors to this process's next trial.

    Args:
        actors: The actors, which must be idle.
        plan: The plan that they were hired by.
        group: The placement group that they are in; None: none.
    """
    global _waiting
    assert _waiting is None, "one trial at a time has actors in a process"
    _waiting = _share(plan, group), actors


def _alive(actors: list[Any]) -> bool:
    try:
        ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=ANSWER_S)
    except (*LOST, GetTimeoutError):
        return False
    return True


def end(actors: list[Any]) -> None:
    """Kill these actors."""
    for actor in actors:
        ray.kill(actor)


def _share(plan: Plan, group: PlacementGroup | None) -> Share:
    return group, plan.actors, plan.cpus, plan.gpus
