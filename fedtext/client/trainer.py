"""The local updates of the clients that are hosted in one place, one stack after the other."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from fedtext.audits.known import Population
from fedtext.client.audit_runner import AuditRunner
from fedtext.client.host import OPTIMIZER, Host
from fedtext.client.texts import RepeatedTests
from fedtext.client.trained import Trained, arrays, state_as_sent
from fedtext.config.loading import told
from fedtext.errors import NetworkError, UserError
from fedtext.ledger.examples import example_multiplier
from fedtext.messages import Reply
from fedtext.methods.base import Method
from fedtext.parameters import withheld
from fedtext.runtime.precision import products
from fedtext.runtime.threads import one_torch_thread
from fedtext.secure.client import SecureClients
from fedtext.seeding import torch_scope
from fedtext.training.examples import ExampleNoise
from fedtext.training.local import Outcome, train
from fedtext.wire import encoding
from fedtext.wire.decoder import Decoder
from fedtext.wire.uplink import Uplink

EXAMPLES = "dp_sgd"  # what the noise on texts' gradients is drawn for
DISTRIBUTED = "distributed"  # what a client draws its share of the noise of a sum for
Finished = tuple[Reply, dict[str, NDArray]]  # with the private tensors that a client keeps after it


class Trainer(Host):
    """Trains the clients of a host, with one network and one workspace for all of them.

    Attributes:
        secure: The clients' part of secure aggregation; None without it.
        population: What an attacker has of the run's population; None if no audit asks for it.
    """

    secure: SecureClients | None = None
    population: Population | None = None

    @cached_property
    def uplink(self) -> Uplink:
        """The encoder of updates."""
        rows = withheld(self.experiment, self.corpus)
        return Uplink(self.experiment, self.shared, self.noise, rows, self.adversaries.sent, self.ranks)

    @cached_property
    def decoder(self) -> Decoder:
        """The decoder of updates, as the server has it."""
        return Decoder(self.experiment, self.shared, ranks=self.ranks)

    @property
    def follows_uplink(self) -> bool:
        """Whether the method's state of a client depends on what mechanisms make of what the client sends."""
        return bool(self.uplink.steps) and type(self.method).after_sending is not Method.after_sending

    @cached_property
    def audits(self) -> AuditRunner:
        """The audits of local updates."""
        words = self.corpus.vocabulary[self.rows.start : self.rows.stop] if self.experiment.audits else []
        tests, public_SV = None, self.corpus.public_SV
        if self.experiment.own_vocabularies:
            tests = self.test_in_all_words
            public_SV = None if public_SV is None else public_SV[:, self.rows.start : self.rows.stop]
        return AuditRunner(
            self.experiment,
            self.shared,
            words,
            self.given.unshared,
            self.corpus.classes,
            self.build,
            tests,
            public_SV,
            self.population,
            RepeatedTests(self.corpus, self.experiment.seed),
        )

    def restore(self, states: Mapping[int, bytes]) -> None:
        super().restore(states)
        self.audits.forget(states)  # what they have done since

    def release(self, members: Sequence[int]) -> dict[int, bytes]:
        """Remove clients, and return their private states. What audits have seen of them here is forgotten."""
        self.audits.forget(members)  # or this host would evaluate them beside the next one
        return super().release(members)

    def train(
        self, flat: NDArray[np.float32], round_: int, members: Sequence[int], audited: Sequence[int] = ()
    ) -> list[Reply]:
        """Run the local updates of a stack of clients: training, then each client's uplink.

        It never raises: the reply of a client that fails has the error, and the client keeps its former private state.
        A client whose payload the server refuses is not told, and keeps its new state.

        Args:
            flat: The broadcast.
            round_: Number of the round.
            members: Ids of the clients.
            audited: Ids of all clients of the round that audits attack, see ``ClientTable.audited``.
        """
        self.audits.audited = audited
        finished, problem = self._attempt(flat, round_, members)
        unfit = any(reply.unfit for reply, _ in finished)
        if problem and len(members) > 1 and not unfit:  # find the client that failed, and train the others without it
            alone = [each for client in members for each in self._attempt(flat, round_, [client])[0]]
            if not any(reply.error for reply, _ in alone):
                problem = f"{problem}, and only in a stack: set training.stack to 1"
                alone = [(Reply(client, error=problem), {}) for client in members]
            finished = alone
        for reply, kept in finished:
            if not reply.error:
                self.private[reply.client] = kept
        return [reply for reply, _ in finished]

    def _attempt(self, flat: NDArray[np.float32], round_: int, members: Sequence[int]) -> tuple[list[Finished], str]:
        """Run the local updates of a stack, without changing private states. Also return the error, if it failed."""
        unfit = False
        try:
            with one_torch_thread(), products(self.experiment.training.tf32):
                return self._train(flat, round_, members), ""
        except UserError as error:
            problem, unfit = str(error), isinstance(error, NetworkError)
        except Exception as error:  # the boundary of a client: any exception of its code is reported with its name
            names = ", ".join(self.clients[client].name for client in members)
            logging.getLogger(__name__).exception("%s failed in round %d", names, round_)
            problem = told(error)
        return [(Reply(client, error=problem, unfit=unfit), {}) for client in members], problem

    def _train(self, flat: NDArray[np.float32], round_: int, members: Sequence[int]) -> list[Finished]:
        start, config, seed = _clocks(), self.experiment.training, self.experiment.seed
        members = sorted(members, key=lambda client: (-len(self.clients[client].train), client))  # see Stack
        stack = self.stack(flat, members)
        *earlier, last = self.method.phases(config.local_epochs)
        work, problem = self.work(last, members, round_), self.problem(flat, members)
        if self.method.has_hooks():
            assert len(members) == 1, "clients of a method with hooks are trained one by one"
            problem = replace(problem, local=self.local(flat, members[0], stack))
        if config.dp_sgd:  # and with it
            problem = replace(problem, examples=self._examples(round_, members[0]))
        with torch_scope(seed, "training", round_, min(members)):
            before = {phase.name: self.run(phase, stack, flat, members, round_) for phase in earlier}
            optimizer = self.optimizer(last, stack, members)
            for place, client in enumerate(members):
                optimizer.recall(place, self.kept(client, OPTIMIZER))
            optimizer.plan([len(each.batches) for each in work])
            outcomes = train(problem, self.training, optimizer, work)
        shared = [spent / len(members) for spent in _since(start)]
        trained = Trained(flat, round_, stack, optimizer, problem.local, self._own(round_), bool(config.dp_sgd))
        finished, tables = dict[int, Finished](), stack.tables(stack.table_ND)
        for place, (client, outcome) in enumerate(zip(members, outcomes, strict=True)):
            if wrong := outcome.problem(stack.flat_CP[place], tables[place]):
                finished[client] = Reply(client, error=wrong, trained=True), {}
                continue
            start = _clocks()
            payload, kept, said = self._sent(trained, place, client, outcome)
            metrics = {f"loss_{name}": value for name, value in outcome.terms.items()} | {"loss": outcome.loss}
            metrics |= {f"loss_{name}": phase[place].loss for name, phase in before.items()} | said
            spent = (share + own for share, own in zip(shared, _since(start), strict=True))
            metrics |= {"samples": len(self.clients[client].train)} | self._spent(*spent)
            finished[client] = Reply(client, payload, payload.nbytes, metrics), kept
        return [finished[client] for client in sorted(members)]

    def _sent(
        self, trained: Trained, place: int, client: int, outcome: Outcome
    ) -> tuple[NDArray, dict[str, NDArray], dict[str, float]]:
        """Complete the local update of a client that has been trained.

        Args:
            trained: The stack in which it was trained.
            place: Its place there.
            client: Its id.
            outcome: The result of its training.

        Returns:
            Its payload, the private tensors that it keeps, and metrics of what was sent.

        Raises:
            ValueError: What it would send or keep is not finite.
        """
        data, parameters = self.clients[client], trained.stack.fetched(place)
        flat, round_ = trained.flat, trained.round
        drawn = partial(torch_scope, self.experiment.seed, "hooks", round_, client)
        local, state, extras, update = trained.completed(self.method, outcome, drawn)
        sent, said = self.uplink.update(flat, parameters, round_, data, extras, update)
        read = None
        if sent and (self.secure or self.follows_uplink):
            read = self.decoder.restored(sent, flat, round_)
        if local is not None and self.follows_uplink and read:
            with drawn():
                state = state_as_sent(self.method, local, state, read, self.shared, data.rows_R)
        kept = trained.kept(parameters, place, arrays(state), self.experiment.training.optimizer.persist)
        payload = np.zeros(0, np.uint8)
        if sent and (self.experiment.audits or not self.secure):
            payload = np.frombuffer(encoding.encode(sent), np.uint8)
        self.audits.observe(payload, flat, parameters, round_, data)
        if self.secure and read:
            rng = self.noise.generator(DISTRIBUTED, round_, client) if self.secure.ring.grid else None
            payload, cut = self.secure.payload(read, rng)
            said = said | {"secure_cut": cut}
        return payload, kept, said

    def _examples(self, round_: int, client: int) -> ExampleNoise:
        """Return the clipping of texts' gradients, and the source of a local update's noise."""
        asked = self.experiment.training.dp_sgd
        assert asked is not None
        rng = self.noise.generator(EXAMPLES, round_, client)
        return ExampleNoise(asked.clip_norm, example_multiplier(self.experiment), rng)

    def _spent(self, seconds: float, cpu_seconds: float) -> dict[str, float]:
        """Return the time of a local update as metrics, on a GPU as time of a GPU too."""
        spent = {"seconds": seconds, "cpu_seconds": cpu_seconds}
        return spent | ({"gpu_seconds": seconds} if self.device.type == "cuda" else {})

    def _own(self, round_: int) -> Sequence[str]:
        """Return the names of the parameters that stay with clients after a round."""
        sent, mirrors, fixes = self.uplink.sent_in(round_), self.method.mirrors, self.experiment.model.fixes
        return [n for n in self.workspaces.layout.shapes if not (n in sent or mirrors(n) or fixes(n))]


def _clocks() -> tuple[float, float]:
    """Return wall and CPU seconds of this thread, which does all the work of a local update."""
    return time.perf_counter(), time.thread_time()


def _since(start: tuple[float, float]) -> list[float]:
    return [now - then for now, then in zip(_clocks(), start, strict=True)]
