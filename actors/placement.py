"""Plan the actors of each trial and their shares of CPUs and GPUs, before anything starts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedtext.client.participants import stacks
from fedtext.config.sections import Resources
from fedtext.errors import UserError

if TYPE_CHECKING:
    from ray.tune import PlacementGroupFactory

EPSILON = 1e-6  # resources are counted in ten-thousandths; 0.1 + 0.2 must fit in 0.3
SHARED_BY = 8  # most actors that auto puts on a GPU: each has a CUDA context there, of some hundred MB
OCCUPIED = 0.7  # a plan uses at least this fraction of the GPUs that could be in use
SERVER = 0.25  # the server's time between two rounds, as a fraction of a stack's
ABOUT = 1.1  # plans within this factor of the least cost count as equal
Node = Mapping[str, float]


@dataclass(frozen=True)
class Plan:
    """The share of a cluster that one trial gets.

    Args:
        actors: client actors of a trial, beside its server.
        cpus: logical CPUs of an actor.
        gpus: GPUs of an actor: 0, 1/k, or a whole number.
        trials: how many such trials run side by side.
    """

    actors: int
    cpus: float
    gpus: float
    trials: int

    def bundles(self, server_node: str) -> "PlacementGroupFactory":
        """Return the trial's placement group.

        Its first bundle is the server's, on ``server_node``, where checkpoints are written. Then comes one bundle for
        each client actor, spread over the nodes.
        """
        from ray.tune import PlacementGroupFactory  # here: it takes a second, and a plan is made before Ray starts

        server = {f"node:{server_node}": 0.001}  # no CPU: it works while its clients wait
        client = {name: amount for name, amount in (("CPU", self.cpus), ("GPU", self.gpus)) if amount}
        return PlacementGroupFactory([server, *[dict(client) for _ in range(self.actors)]], strategy="SPREAD")

    def sentence(self, nodes: Sequence[Node]) -> str:
        """Return the plan in one line, with how much of the cluster it uses."""
        together = self.trials * self.actors
        used = f"{together * self.cpus:g} of {counted(total(nodes, 'CPU'), 'CPU')}"
        if there := total(nodes, "GPU"):
            used += f" and {self.gpus_in_use:g} of {counted(there, 'GPU')}"
        trials = f"{self.trials} trials side by side, each with" if self.trials > 1 else "one trial at a time, with"
        actors = f"{counted(self.actors, 'client actor')} of {amount(self.cpus, self.gpus)}"
        return f"{trials} {actors}: {used} on {counted(len(nodes), 'node')}"

    @property
    def gpus_in_use(self) -> int:
        """Number of GPUs on which an actor has a share. Ray fills one GPU before it begins the next."""
        return gpus_filled(self.trials * self.actors, self.gpus)


def unused_gpus(plan: Plan, reasons: Sequence[str]) -> str:
    """Say that GPUs are reserved and not used.

    Args:
        plan: the trial's plan.
        reasons: why each actor does not use its GPUs; empty if it does.

    Returns:
        A sentence; empty if all actors use their GPUs.
    """
    without = [reason for reason in reasons if reason]
    if not without:
        return ""
    actors = f"{len(without)} of {counted(len(reasons), 'client actor')}"
    why = "; ".join(dict.fromkeys(without))
    return (
        f"{actors} reserved {counted(plan.gpus, 'GPU')} each and cannot use that: {why}: their clients train on the CPU"
    )


def total(nodes: Sequence[Node], resource: str) -> float:
    """Return how much of a resource all nodes have together."""
    return sum(node.get(resource, 0) for node in nodes)


def counted(number: float, noun: str) -> str:
    """Return a number with its noun: ``1 GPU``, ``8 GPUs``."""
    return f"{number:.4g} {noun}" if number == 1 else f"{number:.4g} {noun}s"


def amount(cpus: float, gpus: float) -> str:
    """Return CPUs and GPUs in words, without those that are 0."""
    return " and ".join(counted(number, noun) for number, noun in ((cpus, "CPU"), (gpus, "GPU")) if number)


def gpus_filled(actors: int, share: float) -> int:
    """Return the GPUs that ``actors`` of this ``share`` occupy on a node. Ray fills one GPU before the next."""
    if not share:
        return 0
    return math.ceil(actors / int(1 / share + EPSILON)) if share < 1 else actors * round(share)


def gpu_fraction(asked: float) -> float:
    """Return GPUs per actor.

    Raises:
        UserError: it is not 0, a whole number, or 1/n. Other fractions would leave a part of every GPU unused.
    """
    if 0 < asked < 1 and abs(asked - 1 / round(1 / asked)) <= 1e-4:
        return share(round(1 / asked))
    if asked < 0 or asked % 1:
        close = 1 / max(1, round(1 / asked)) if asked > 0 else 0
        raise UserError(
            f"resources.gpus_per_actor: {asked:g} of a GPU cannot be shared evenly; write 1/n or a whole number, such "
            f"as {close:.4g}"
        )
    return asked


def share(count: int) -> float:
    """Return 1/count, rounded down to Ray's ten-thousandths, so that ``count`` shares fit on one GPU."""
    return math.floor(1e4 / count) / 1e4


def plan(
    resources: Resources,
    clients: int,
    nodes: Sequence[Node],
    stack: int = 1,
    cases: int = 1,
    concurrent: int | None = None,
    cohort: int | None = None,
) -> Plan:
    """Divide a cluster among the trials that run side by side and the client actors of each.

    The plan is the one that ends the whole sweep first if all stacks take equally long (``_cost``). A GPU is shared by
    as few actors as that needs. The results of a trial do not depend on the plan.

    Args:
        resources: what the experiment asks for.
        clients: clients of one trial.
        nodes: Ray's resource dictionary of every node.
        stack: clients that are trained together; they are never divided.
        cases: number of trials of the sweep.
        concurrent: largest number of trials side by side; None: the plan chooses.
        cohort: clients that train in a round; None: all.

    Raises:
        UserError: an actor fits on no node, the actors that ``resources`` asks for do not fit, or a GPU fraction is
            not 1/n.
    """
    asked, cpus = resources.gpus_per_actor, resources.cpus_per_actor
    if asked != "auto":
        shares = [gpu_fraction(float(asked))]
    else:
        shares = [share(k) for k in range(1, SHARED_BY + 1)] if total(nodes, "GPU") else [0.0]
    if not cpus and not shares[0]:
        raise UserError("resources: an actor needs a share of a CPU or a GPU; set cpus_per_actor or gpus_per_actor")
    rooms = [room(nodes, cpus, gpus) for gpus in shares]
    most = max(rooms)
    blocks, busy = math.ceil(clients / stack), math.ceil((cohort or clients) / stack)
    fixed = _asked_actors(resources, clients, stack, most, _words(nodes, cpus, shares[-1]))
    limit = min(cases, concurrent or cases, most)
    candidates = []
    for trials in range(1, limit + 1):
        for actors in [fixed] if fixed else range(1, min(blocks, most // trials) + 1):
            if trials * actors <= most:
                gpus = next(gpus for gpus, room in zip(shares, rooms, strict=True) if room >= trials * actors)
                candidates.append(Plan(actors, cpus, gpus, trials))
    return _best(candidates, busy, cases)


def _best(candidates: Sequence[Plan], blocks: int, cases: int) -> Plan:
    """Return the best plan: among those that leave few GPUs idle and end a sweep about as early as any, the one with
    the most actors, then with the fewest trials, whose first results come earlier."""
    occupied = max(one.gpus_in_use for one in candidates)
    busy = [one for one in candidates if one.gpus_in_use >= OCCUPIED * occupied]
    soon = min(_cost(one, blocks, cases) for one in busy)
    close = [one for one in busy if _cost(one, blocks, cases) <= ABOUT * soon]
    return max(close, key=lambda one: (one.trials * one.actors, -one.trials))


def _cost(plan: Plan, blocks: int, cases: int) -> float:
    """Return the time of a sweep, in units of one stack's local update.

    It is the number of batches of trials, times the stacks of the busiest actor in a round plus the server's part,
    during which the actors wait.
    """
    return math.ceil(cases / plan.trials) * (math.ceil(blocks / plan.actors) + SERVER)


def _words(nodes: Sequence[Node], cpus: float, gpus: float) -> tuple[str, str]:
    """Return the resources of an actor and of the cluster, in words."""
    there = f"{counted(total(nodes, 'CPU'), 'CPU')} and {counted(total(nodes, 'GPU'), 'GPU')}"
    return amount(cpus, gpus), f"{there} on {counted(len(nodes), 'node')}"


def _asked_actors(resources: Resources, clients: int, stack: int, room: int, words: tuple[str, str]) -> int | None:
    """Return the number of actors that ``clients_per_actor`` asks for; None if the plan chooses.

    Raises:
        UserError: there is ``room`` for fewer actors.
    """
    each, there = words
    if room < 1:
        raise UserError(f"resources: no node has {each} for a client actor; the cluster has {there}")
    hosted = resources.clients_per_actor
    if hosted == "auto":
        return None
    if hosted % stack and hosted < clients:
        raise UserError(
            f"resources.clients_per_actor: {hosted} would divide stacks of {stack} clients "
            f"(training.stack); write a multiple of {stack}, or leave it at auto"
        )
    actors = math.ceil(clients / hosted)
    if actors > room:
        enough = stack * math.ceil(clients / stack / room)
        raise UserError(
            f"resources.clients_per_actor: {clients} clients need {actors} actors of {each}, but the cluster has room "
            f"for {room} ({there}); raise clients_per_actor to {enough}, or leave it at auto"
        )
    return actors


def room(nodes: Sequence[Node], cpus: float, gpus: float) -> int:
    """Return how many client actors fit on a cluster, if nothing else runs there.

    Args:
        nodes: Ray's resource dictionary of every node.
        cpus: CPUs of an actor.
        gpus: GPUs of an actor.
    """
    return sum(_slots(node, cpus, gpus) for node in nodes)


def _slots(node: Node, cpus: float, gpus: float) -> int:
    """Return how many client actors fit on a node."""
    by_cpu = node.get("CPU", 0) / cpus + EPSILON if cpus else math.inf
    if not gpus:
        return int(by_cpu)
    on_gpus = int(node.get("GPU", 0)) * int(1 / gpus + EPSILON) if gpus < 1 else node.get("GPU", 0) // gpus
    return int(min(by_cpu, on_gpus))


def assign(costs: Mapping[int, float], actors: int, stack: int = 1) -> list[list[int]]:
    """Assign clients to actors: the costliest stack first, each to the actor with the smallest load so far.

    Args:
        costs: each client's cost, by id.
        actors: number of actors.
        stack: clients that are trained together; they stay together.

    Returns:
        The client ids of each actor.
    """
    loads, hosted = [0.0] * actors, [[] for _ in range(actors)]  # type: ignore[var-annotated]
    blocks = stacks(list(costs), stack)
    for members in sorted(blocks, key=lambda members: (-sum(costs[client] for client in members), members)):
        place = min(range(actors), key=lambda actor: (loads[actor], len(hosted[actor]), actor))
        loads[place] += sum(costs[client] for client in members)
        hosted[place] += members
    return hosted


def homes(hosted: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the number of each client's actor."""
    return {client: place for place, members in enumerate(hosted) for client in members}


@dataclass(frozen=True)
class Dealt:
    """The actors of very many clients, whose texts every actor reads from disk: blocks of clients in turn.

    Args:
        actors: number of actors.
        block: clients that stay together.
    """

    actors: int
    block: int

    def __getitem__(self, client: int) -> int:
        return client // self.block % self.actors
