"""The Ray actor that hosts clients."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from actors.metrics import TrialMetrics
from actors.placement import Dealt
from fedtext.client.local_fleet import population
from fedtext.client.parts import part_of
from fedtext.client.worker import Worker
from fedtext.config.experiment import Experiment
from fedtext.corpora.stored import StoredClients
from fedtext.corpora.types import ClientData, Corpus
from fedtext.errors import UserError
from fedtext.evaluation import Evaluated
from fedtext.messages import Reply
from fedtext.runtime.devices import no_cuda
from fedtext.secure.client import secure_clients
from fedtext.server.aggregation import Sum, Summation
from fedtext.state.machine import machine_of
from fedtext.state.noise_key import NoiseKey
from fedtext.state.trained import ClientPart
from fedtext.wire.decoder import Decoder


@dataclass(frozen=True)
class Host:
    """The node of an actor.

    Args:
        node: Ray's id of the node.
        unused_gpu: why the actor does not use the GPU that is reserved for it; empty if it does or has none.
        machine: Name of what it computes with.
        actor: Ray's id of the actor.
        address: The address of the node.
    """

    node: str
    unused_gpu: str
    machine: str
    actor: str
    address: str


@ray.remote
class ClientActor:
    """One or more clients with their private state, on one share of one node's CPUs and GPUs.

    Call ``host`` before any other method.
    """

    def host(
        self,
        experiment: Experiment,
        header: Corpus,
        unshared: Mapping[str, NDArray[np.float32]],
        corpus_clients: int,
        weights: Sequence[int],
        noise: NoiseKey,
        trial: str,
        members: Sequence[int],
        *objects: Sequence[ClientData],
    ) -> Host:
        """Host these clients for a trial. Clients of an earlier trial are dropped.

        The clients train on the CPU if the reserved GPU cannot be used: a logical GPU (``ray start --num-gpus`` on a
        machine without one), or a build of torch without CUDA. The returned ``Host`` says so.

        Args:
            experiment: The experiment.
            header: The corpus without its clients, unless they are on disk.
            unshared: Initial values of parameters that are not exchanged, by name (``with_tables``).
            corpus_clients: Number of the corpus's clients.
            weights: Numbers of samples of all clients of the trial, hosted here or not.
            noise: The run's key of noise.
            trial: Id of the trial's case, for metrics.
            members: Ids of the clients that are hosted here. Of a corpus on disk any client can be.
            objects: Lists of clients with these among them.

        Raises:
            UserError: This node lacks what the clients need, such as a checkpoint.
        """
        vars(self).clear()  # an earlier trial's memory is needed
        context = ray.get_runtime_context()
        reserved = bool(context.get_accelerator_ids()["GPU"])
        unused = no_cuda() if reserved else ""
        device = "cuda" if reserved and not unused else "cpu"
        there = isinstance(header.clients, StoredClients)
        clients = header.clients if there else _chosen(objects, members)
        try:
            len(clients)  # opens those on disk
            self.worker = Worker(experiment, header, clients, unshared, device, corpus_clients, noise)
        except UserError as error:  # what a node lacks, the one where the command runs may have
            raise UserError(f"{error}{_where()}") from error
        self.worker.secure = secure_clients(experiment, weights, self.worker.decoder.coordinates)
        self.worker.population = population(self.worker)
        self.decoder = Decoder(experiment, self.worker.shared, bool(self.worker.secure), self.worker.ranks)
        self.summation = Summation(experiment, self.decoder.sent, weights)
        self.sum: tuple[int, Sum] | None = None  # of a round
        self.metrics, self.on_gpu = TrialMetrics(experiment, trial), device == "cuda"
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self.metrics.gpu_memory(self.on_gpu)
        name, address = machine_of(experiment, device), ray.util.get_node_ip_address()
        return Host(context.get_node_id(), unused, name, context.get_actor_id(), address)

    def train(
        self,
        flat: NDArray[np.float32],
        round_: int,
        stacks: Sequence[Sequence[int]],
        fold: bool,
        audited: Sequence[int],
    ) -> list[Reply]:
        """Train stacks of clients.

        Args:
            flat: The shared parameters, flat.
            round_: Number of the round.
            stacks: The client ids of each stack.
            fold: Add the updates up in this actor instead of returning them; ``partial`` returns their sum.
            audited: Ids of all clients of the round that audits attack, see ``ClientTable.audited``.
        """
        replies = [reply for members in stacks for reply in self.worker.train(flat, round_, members, audited)]
        if self.on_gpu:
            self.metrics.gpu_memory(used=True)
        return [self._folded(reply, flat, round_) for reply in replies] if fold else replies

    def _folded(self, reply: Reply, flat: NDArray[np.float32], round_: int) -> Reply:
        if not reply.payload.size:
            return reply
        try:
            update = self.decoder.update(reply.payload, reply.client, flat, round_)
            self.summation.check(update)
        except ValueError as refused:  # the server would refuse it as well
            return Reply(reply.client, error=str(refused), trained=True)
        if self.sum is None or self.sum[0] != round_:
            self.sum = round_, self.summation.empty()
        self.sum[1].add(update)
        return replace(reply, payload=reply.payload[:0].copy())

    def exchange(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the answers of clients in a step of secure aggregation. See ``SecureClients.answer``."""
        assert self.worker.secure is not None, "or the server asks nothing"
        return self.worker.secure.answer(step, messages)

    def partial(self, round_: int) -> Sum | None:
        """Return the sum of this round's folded updates and forget it; None if there are none."""
        kept, self.sum = self.sum, None
        return kept[1] if kept and kept[0] == round_ else None

    def evaluate(
        self,
        flat: NDArray[np.float32],
        round_: int,
        members: Sequence[int],
        final: bool,
        splits: Sequence[str],
        attacked: Sequence[int],
    ) -> dict[int, Evaluated]:
        """Evaluate clients, as ``Worker.evaluate`` does.

        Args:
            flat: The shared parameters, flat.
            round_: Number of the round.
            members: Ids of the clients.
            final: Whether to include the evaluations that are made once, with the final model.
            splits: ``test``, ``validation`` or both.
            attacked: Ids of all clients that audits attack.
        """
        return self.worker.evaluate(flat, round_, members, final, splits, attacked)

    def own_models(self, flat: NDArray[np.float32], round_: int, members: Sequence[int]) -> dict[int, Evaluated]:
        """Evaluate clients' own models, as ``Worker.own_models`` does.

        Args:
            flat: The shared parameters, flat.
            round_: Number of the round.
            members: Ids of the clients.
        """
        return self.worker.own_models(flat, round_, members)

    def report(self, flat: NDArray[np.float32], client: int) -> dict[str, str]:
        """Return the files of audits for a client: texts by file name."""
        return self.worker.audits.report(client, flat)

    def parts(self, flat: NDArray[np.float32], round_: int, members: Sequence[int]) -> dict[int, ClientPart]:
        """Return the private parts of clients' models, by client.

        Args:
            flat: The shared parameters, flat.
            round_: Number of the round.
            members: Ids of the clients.
        """
        return {client: part_of(self.worker, flat, round_, client) for client in members}

    def private_states(self, members: Sequence[int] | None) -> dict[int, bytes]:
        """Return the encoded private states of clients; None: of all those hosted here that have one."""
        return self.worker.private_states(members)

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Restore private states that ``private_states`` returned."""
        self.worker.restore(states)

    def adopt(self, states: Mapping[int, bytes], *objects: Sequence[ClientData]) -> None:
        """Add clients, with their private states; ``objects`` are lists with their data among them."""
        self.worker.adopt(_chosen(objects, states), states)

    def release(self, members: Sequence[int]) -> dict[int, bytes]:
        """Remove clients, and return their private states."""
        return self.worker.release(members)

    def leaving(self, homes: Dealt, place: int) -> dict[int, int]:
        """Return the bytes of the private states that have another home than this actor, by client.

        Args:
            homes: The homes.
            place: The number of this actor there.
        """
        return {client: size for client, size in self.worker.private.sizes().items() if homes[client] != place}


def _where() -> str:
    """Return which node this is, if there are several."""
    several = sum(node["Alive"] for node in ray.nodes()) > 1
    return f" (on node {ray.util.get_node_ip_address()})" if several else ""


def _chosen(objects: Iterable[Sequence[ClientData]], members: Iterable[int]) -> list[ClientData]:
    """Return the clients with these ids."""
    wanted = set(members)
    return [client for clients in objects for client in clients if client.id in wanted]
