"""Resources of the cluster: those in use, and those that a trial waits for before it starts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util import placement_group_table

from actors.cluster import nodes
from actors.placement import Plan, amount, counted, room, total


@dataclass(frozen=True)
class Use:
    """The use of a cluster.

    Attributes:
        nodes: Number of its nodes.
        cpus, gpus: Logical CPUs and GPUs that are reserved.
        all_cpus, all_gpus: All that it has.
        store: Bytes of objects in memory.
        all_store: Bytes that the object stores of all nodes hold.
    """

    nodes: int
    cpus: float
    all_cpus: float
    gpus: float
    all_gpus: float
    store: float
    all_store: float


def in_use() -> Use:
    """Return the use of the cluster to which this process is connected, by all who use it."""
    there, free = nodes(), ray.available_resources()

    def of(resource: str) -> tuple[float, float]:
        whole = total(there, resource)
        return whole - free.get(resource, 0), whole

    return Use(len(there), *of("CPU"), *of("GPU"), *of("object_store_memory"))


def fits(plan: Plan) -> bool:
    """Whether the cluster has enough nodes for a trial of this plan. Others may use them."""
    return room(nodes(), plan.cpus, plan.gpus) >= plan.actors


def waiting_for(plan: Plan) -> str:
    """Describe the resources that a trial of this plan lacks.

    Returns:
        A sentence with what is free in the cluster; empty if the trial has its share and its processes are starting.
    """
    wanted = plan.bundles(ray.util.get_node_ip_address()).bundles
    if not any(
        group["state"] in ("PENDING", "RESCHEDULING") and list(group["bundles"].values()) == wanted
        for group in _own_groups()
    ):
        return ""
    free, there = ray.available_resources(), nodes()
    needs = amount(plan.actors * plan.cpus, plan.actors * plan.gpus)
    found = [
        f"{free.get(resource, 0):.4g} of {counted(total(there, resource), resource)}"
        for resource, share in (("CPU", plan.cpus), ("GPU", plan.gpus))
        if share
    ]
    actors = f"{counted(plan.actors, 'client actor')} of {amount(plan.cpus, plan.gpus)}"
    return (
        f"waiting for {needs} ({actors}): {' and '.join(found)} free on {counted(len(there), 'node')}; "
        "`ray job list` shows which commands run there"
    )


def _own_groups() -> Iterator[Mapping[str, Any]]:
    """Yield the placement groups of this process's trials: another sweep's may have the same bundles. The number of a
    group ends with that of the process that asked for it."""
    job = ray.get_runtime_context().get_job_id()
    yield from (group for number, group in placement_group_table().items() if number.endswith(job))
