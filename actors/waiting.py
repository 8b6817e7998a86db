"""Resources that a trial waits for before it starts."""

import ray
from ray.util import placement_group_table

from actors.cluster import nodes
from actors.placement import Plan, amount, counted, total


def waiting_for(plan: Plan) -> str:
    """Describe the resources that a trial of this plan lacks.

    Returns:
        A sentence with what is free in the cluster; empty if the trial has its share and its processes are starting.
    """
    wanted = plan.bundles(ray.util.get_node_ip_address()).bundles
    groups = placement_group_table().values()
    if not any(
        group["state"] in ("PENDING", "RESCHEDULING") and list(group["bundles"].values()) == wanted for group in groups
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
        "`ray status` shows who has the others"
    )
