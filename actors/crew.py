"""Client actors outlive a trial: the next one of the same process, on the same share of the cluster, takes them over.

To start an actor costs seconds, most of which go into imports. Tune gives a trial's process and its placement group to
the next trial that asks for the same (``reuse_actors``), so that a sweep starts its processes once.
"""

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, NodeDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.client import ClientActor
from actors.placement import Plan

# What Ray raises where a process is gone. Its memory monitor's kills have an error of their own, which is no actor's.
LOST = (RayActorError, NodeDiedError, WorkerCrashedError, OutOfMemoryError)
ANSWER_S = 60.0  # an actor that does not answer for so long is given up
Berth = tuple[PlacementGroup | None, int, float, float]
_waiting: tuple[Berth, list[Any]] | None = None  # actors of this process without a trial; they end with it


def hire(plan: Plan, group: PlacementGroup | None) -> list[Any]:
    """``plan.actors`` client actors without clients, one in each client bundle of ``group``."""
    global _waiting
    kept, _waiting = _waiting, None
    if kept and kept[0] == _berth(plan, group) and _alive(kept[1]):
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
    """Leaves actors, in which nothing runs any more, to this process's next trial."""
    global _waiting
    assert _waiting is None, "one trial at a time has actors in a process"
    _waiting = _berth(plan, group), actors


def _alive(actors: list[Any]) -> bool:
    try:
        ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=ANSWER_S)
    except (*LOST, GetTimeoutError):
        return False
    return True


def end(actors: list[Any]) -> None:
    for actor in actors:
        ray.kill(actor)


def _berth(plan: Plan, group: PlacementGroup | None) -> Berth:
    return group, plan.actors, plan.cpus, plan.gpus
