"""How many actors a trial gets and what each takes, decided and refused before anything starts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedtext.errors import UserError
from fedtext.experiment import Resources
from fedtext.fleet import stacks

if TYPE_CHECKING:
    from ray.tune import PlacementGroupFactory

EPSILON = 1e-6  # resources are counted in ten-thousandths; 0.1 + 0.2 must fit in 0.3


@dataclass(frozen=True)
class Plan:
    """``actors`` client actors of ``cpus`` and ``gpus`` each, beside one server; ``trials`` fit side by side."""

    actors: int
    cpus: float
    gpus: float
    trials: int

    def bundles(self, server_node: str) -> "PlacementGroupFactory":
        """The trial's placement group: the server's bundle on the driver's node, where checkpoints are written, then
        one bundle for each client actor, spread over the nodes."""
        from ray.tune import PlacementGroupFactory  # here: it takes a second, and a plan is made before Ray starts

        server = {f"node:{server_node}": 0.001}  # no CPU: it works while its clients wait
        client = {name: amount for name, amount in (("CPU", self.cpus), ("GPU", self.gpus)) if amount}
        return PlacementGroupFactory([server, *[dict(client) for _ in range(self.actors)]], strategy="SPREAD")


def gpu_fraction(asked: float | str, clients: int, gpus: float) -> float:
    """GPUs per actor. Raises UserError unless it is 0, a whole number, or 1/n: other fractions leave a rest of every
    GPU that nobody can use."""
    if asked == "auto":
        return share(math.ceil(clients / gpus)) if gpus else 0.0
    fraction = float(asked)
    if 0 < fraction < 1 and abs(fraction - 1 / round(1 / fraction)) <= 1e-4:
        return share(round(1 / fraction))
    if fraction < 0 or fraction % 1:
        close = 1 / max(1, round(1 / fraction)) if fraction > 0 else 0
        raise UserError(
            f"resources.gpus_per_actor: {asked} of a GPU cannot be shared evenly; write 1/n or a whole number, such as "
            f"{close:.4g}"
        )
    return fraction


def share(count: int) -> float:
    """1/count, down to the ten-thousandths that Ray counts in: ``count`` such shares fit on one GPU."""
    return math.floor(1e4 / count) / 1e4


def plan(resources: Resources, clients: int, nodes: Sequence[dict[str, Any]], stack: int = 1) -> Plan:
    """Places ``clients``, stacks of them undivided, on ``nodes`` (Ray's resource dictionaries). The numbers a trial
    computes do not depend on it.

    Raises UserError, before anything starts, if it does not fit or if a fraction is not 1/n.
    """
    gpus_there = sum(node.get("GPU", 0) for node in nodes)
    gpus = gpu_fraction(resources.gpus_per_actor, math.ceil(clients / stack), gpus_there)
    cpus = resources.cpus_per_actor
    if not cpus and not gpus:
        raise UserError("resources: an actor needs a share of a CPU or a GPU; set cpus_per_actor or gpus_per_actor")
    slots = sum(_slots(node, cpus, gpus) for node in nodes)
    each = f"{cpus:g} CPUs" + (f" and {gpus:.4g} GPUs" if gpus else "")
    there = f"{sum(node.get('CPU', 0) for node in nodes):g} CPUs and {gpus_there:g} GPUs on {len(nodes)} node(s)"
    if slots < 1:
        raise UserError(f"resources: no node has {each} for a client actor; the cluster has {there}")
    if resources.clients_per_actor == "auto":
        actors = min(math.ceil(clients / stack), slots)
    else:
        if resources.clients_per_actor % stack and resources.clients_per_actor < clients:
            raise UserError(
                f"resources.clients_per_actor: {resources.clients_per_actor} would divide stacks of {stack} clients "
                f"(training.stack); write a multiple of {stack}, or leave it at auto"
            )
        actors = math.ceil(clients / resources.clients_per_actor)
    if actors > slots:
        enough = stack * math.ceil(clients / stack / slots)
        raise UserError(
            f"resources.clients_per_actor: {clients} clients need {actors} actors of {each}, but the cluster has room "
            f"for {slots} ({there}); raise clients_per_actor to {enough}, or leave it at auto"
        )
    return Plan(actors, cpus, gpus, max(1, slots // actors))


def _slots(node: dict[str, Any], cpus: float, gpus: float) -> int:
    by_cpu = node.get("CPU", 0) / cpus + EPSILON if cpus else math.inf
    if not gpus:
        return int(by_cpu)
    on_gpus = int(node.get("GPU", 0)) * int(1 / gpus + EPSILON) if gpus < 1 else node.get("GPU", 0) / gpus + EPSILON
    return int(min(by_cpu, on_gpus))


def assign(costs: Mapping[int, float], actors: int, stack: int = 1) -> list[list[int]]:
    """Client ids for each actor: the costliest stack first, each to the actor that has least to do so far."""
    loads, hosted = [0.0] * actors, [[] for _ in range(actors)]  # type: ignore[var-annotated]
    blocks = stacks(list(costs), stack)
    for members in sorted(blocks, key=lambda members: (-sum(costs[client] for client in members), members)):
        place = min(range(actors), key=lambda actor: (loads[actor], len(hosted[actor]), actor))
        loads[place] += sum(costs[client] for client in members)
        hosted[place] += members
    return hosted
