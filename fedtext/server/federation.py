"""The loop over rounds, against the interface Fleet: independent of Ray, of processes, and of the place of clients."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.layout import Layout, finite
from fedtext.ledger import FILE, Entry, ledger, spent, text
from fedtext.methods import layouts
from fedtext.models.ranks import Ranks
from fedtext.records import RoundRecord
from fedtext.server import repeats
from fedtext.server.buffer import UpdateBuffer
from fedtext.server.collusion import chosen
from fedtext.server.continuations import Continuations
from fedtext.server.downlink import Downlink
from fedtext.server.evaluations import audit_files, warn_unmeasured
from fedtext.server.fleet import FleetT
from fedtext.server.inbox import Inbox
from fedtext.server.round_evaluation import RoundEvaluation
from fedtext.server.sampling import Returned, adversaries, cohort
from fedtext.server.server_step import ServerStep
from fedtext.server.traffic import Traffic, beside, in_order, round_metrics
from fedtext.server.unsent import keep_unsent
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.failures import Failures
from fedtext.state.machines import Machines
from fedtext.wire.decoder import Decoder


class Federation(Generic[FleetT]):
    """The server of one experiment, and the loop over rounds. It continues from the last checkpoint, if there is one.

    Args:
        experiment: The experiment.
        shared: The shared parameters before the first round, tables with all rows.
        fleet: The clients.
        checkpoints: Where the state is saved; None: it is not.
        continuations: Texts that the final model continues; None: there are none.
        failures: Which clients failed in earlier rounds, if a repeated one has to have the same; None: it has not.
        machines: Those of earlier rounds; None: they are not known, and those of this run are not written down.

    Attributes:
        notice: A sentence if, from the last round on, results depend on the machines; else empty.

    Raises:
        UserError: More rounds are completed than ``training.rounds``, or the checkpoint cannot be used.
    """

    def __init__(
        self,
        experiment: Experiment,
        shared: dict[str, NDArray[np.float32]],
        fleet: FleetT,
        checkpoints: Checkpoints | None,
        continuations: Continuations | None = None,
        failures: Failures | None = None,
        machines: Machines | None = None,
        fixed: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.experiment, self.fleet, self.checkpoints = experiment, fleet, checkpoints
        self.continuations, self.failures = continuations, failures
        self.machines, self.notice = machines or Machines(), ""
        self.layout = Layout({name: tensor.shape for name, tensor in shared.items()})
        self.flat, self.fixed = self.layout.pack(shared), fixed or {}
        self.history: list[RoundRecord] = []  # without metrics of clients where checkpoints have them
        ranks = Ranks.of(experiment.model, experiment.seed, len(fleet.clients))
        self.decoder = Decoder(experiment, self.layout, bool(experiment.server.secure_aggregation), ranks)
        self.names = fleet.clients.names
        self.trainees = trainees = fleet.clients[-1:] if experiment.method.pooled else fleet.clients
        self.adversaries = adversaries(experiment, len(trainees))
        snapshot = checkpoints.load() if checkpoints else None
        if snapshot:
            self.flat, self.history = snapshot.flat, list(snapshot.history)
            fleet.restore(snapshot.clients)
        kept = snapshot.moments if snapshot else None
        buffer = experiment.server.buffer
        self.buffer = UpdateBuffer(buffer, experiment, trainees, fleet, kept) if buffer else None
        self.evaluation = RoundEvaluation(experiment, fleet, snapshot)
        self.step = ServerStep(experiment, shared, self.decoder.sent, fleet, len(trainees), kept)
        received = layouts.received(experiment.method, self.layout, experiment.model.fixes, experiment.uplink)
        self.inbox = Inbox(experiment, self.decoder, self.step.summation, fleet.clients, self.buffer, failures)
        self.downlink = Downlink(experiment, received, self._took_part, ranks)
        if len(self.history) > experiment.training.rounds:
            raise UserError(
                f"training.rounds: {len(self.history)} rounds are completed, more than {experiment.training.rounds}: "
                "set as many or more, or start a new run"
            )

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """The shared parameters as named tensors."""
        return self.layout.views(self.flat)

    def whole(self, flat: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Return shared parameters as named tensors with those that never change."""
        return {**self.fixed, **self.layout.views(flat)}

    @property
    def final(self) -> NDArray[np.float32]:
        """The parameters of the last round, or of the best one so far if ``evaluation.select`` chooses."""
        return self.evaluation.final(self.flat)

    def run(self) -> Iterator[RoundRecord]:
        """Run the remaining rounds and yield a record of each, after its checkpoint has been written.

        The first record has the ledger of all rounds among its ``files``, so that a trial has one however early it is
        stopped; the last one has the files of audits. A run that is extended keeps its records, including metrics that
        only its former last round has (Ap, Local, Global, audits), and has a new ledger of all rounds.

        Raises:
            UserError: The parameters are not finite after a round, or no round can be selected.
            ClientError: A client failed, and ``participation.on_client_error`` is ``fail``.
        """
        handle, rounds = self._broadcast(), self.experiment.training.rounds
        budget = text(entries) if (entries := self.ledger(rounds)) else ""
        told = next((record.files[FILE] for record in reversed(self.history) if FILE in record.files), "")
        for round_ in range(len(self.history) + 1, rounds + 1):
            start = time.perf_counter()
            before = self.flat
            if self.buffer:
                self.buffer.begin(round_, before, handle)
            attempts, aggregated = self._train(handle, round_)
            self.notice = self.machines.train(round_, self.fleet.machines)
            if not finite(self.flat):
                raise UserError(
                    f"the parameters after round {round_} are not finite, although all that clients sent was: lower "
                    "server.optimizer.lr or training.optimizer.lr, or the noise; if the aggregation or the method is "
                    "your own, check what it returns (aggregate, server_step)"
                )
            keep_unsent(self.experiment, self.layout, before, self.flat, self.fleet.withheld, round_)
            self.step.canaries.observe(before, self.flat, round_)
            del handle  # frees the memory of the last broadcast
            handle = self._broadcast()
            last = round_ == rounds
            seconds = time.perf_counter() - start
            each = [self.fleet.clients[client] for attempt in attempts for client in attempt.received]
            down = self.downlink.size(each, round_)
            metrics = round_metrics(attempts, down, self.experiment.method.pooled, self.history, self.adversaries)
            metrics |= beside(metrics, aggregated) | spent(self.ledger(round_))
            if self.buffer:
                metrics |= self.buffer.metrics(round_)
            metrics["train_seconds"] = seconds
            record = RoundRecord(round_, time.time(), metrics)
            self.history.append(record)
            done = attempts[-1].completed
            attacked = self.fleet.clients.audited(done, last) if self.experiment.audits else []
            self.evaluation.after(self.history, self.flat, handle, done, attacked)
            if last:
                entries, found, files = self.step.canaries.measured(self.ledger(rounds))
                metrics.update(found)
                record.files, budget = files, text(entries) if entries else ""
            metrics["round_seconds"], record.time = time.perf_counter() - start, time.time()
            if budget != told:
                record.files[FILE] = told = budget
            if last:
                warn_unmeasured(self.experiment, self.history)
                if self.continuations:
                    record.files |= self.continuations.files(self.whole(self.final))
                record.files |= audit_files(self.experiment, self.fleet, handle, record, attacked)
            if self.checkpoints:
                self.checkpoints.changed(client for attempt in attempts for client in attempt.cohort)
                if last or round_ % self.experiment.checkpoint.every == 0:
                    self._save(self.checkpoints)
            yield record

    def _save(self, checkpoints: Checkpoints) -> None:
        private, settled = self.fleet.private_states(checkpoints.wanted()), checkpoints.settled
        best = self.evaluation.best_rounds
        moments = self.step.to_keep() | (best.to_keep() if best else {})
        if self.buffer:
            moments |= self.buffer.to_keep(len(self.history))
        checkpoints.save(self.flat, private, self.history, moments, self.evaluation.earlier(self.flat))
        if self.failures:
            self.failures.forget(len(self.history))
        for place in range(settled, checkpoints.settled):
            self.history[place] = replace(self.history[place], clients={})

    def _train(self, handle: Any, round_: int) -> tuple[list[Traffic], Mapping[str, float]]:
        """Train clients and aggregate their updates, again with other clients if too few complete the round.

        Returns:
            The traffic of each attempt, and the metrics of the aggregation.
        """
        attempts: list[Traffic] = []
        again = repeats.repeatable(self.experiment, len(self.trainees))
        some = again and repeats.some_may_train(self.experiment)
        while True:
            spent_s = sum(attempt.simulated_seconds or 0.0 for attempt in attempts)
            sample = self._sample(round_, len(attempts) + 1, spent_s)
            states = self.fleet.private_states(sample.clients) if some else {}
            attempts.append(Traffic(sample.clients, sample.late, sample.seconds, started=sample.started))
            try:
                self.step.secure.begin(round_, len(attempts), sample)
                place = self.buffer or self.fleet
                left, failing = repeats.leave_out(self.failures, self.fleet, round_, len(attempts), sample.clients)
                trained = chain(left, place.train(handle, round_, sample.clients))
                replies = in_order(trained, sample.clients, round_, self.names)
                updates = self.inbox.updates(replies, self.flat, round_, attempts, failing)
                given = self.adversaries, self.state, self.decoder.sent, self.step.summation.check
                updates = chosen(self.experiment, updates, *given)
                updates = self.buffer.scaled(updates, round_) if self.buffer else updates
                self.flat, aggregated = self.step.run(self.flat, updates, round_, len(attempts))
                return attempts, aggregated
            except repeats.TooFewClientsError as error:
                said = str(error) or repeats.sentence(self.experiment, round_, attempts, self.names)
                what = error.remedy or repeats.remedy(attempts)
            if not again or len(attempts) == repeats.ATTEMPTS:
                raise UserError(f"{said}: {what}")
            logging.getLogger(__name__).warning("%s; another sample of clients repeats it", said)
            for _ in self.fleet.partials(round_):  # the sums of those who did complete it
                pass
            self.fleet.restore(states)

    def _broadcast(self) -> Any:
        """Give the parameters to the fleet, followed by what clients receive beside them."""
        return self.fleet.broadcast(self.step.broadcast(self.flat))

    def ledger(self, rounds: int) -> list[Entry]:
        """Return the guarantees of a run of this many rounds."""
        return ledger(self.experiment, self.coordinates, len(self.trainees), rounds)

    @property
    def coordinates(self) -> int:
        """Number of coordinates that a client sends."""
        return self.decoder.coordinates

    def _sample(self, round_: int, attempt: int = 1, spent_s: float = 0.0) -> Returned:
        """Return the clients of an attempt at a round; earlier attempts took ``spent_s`` simulated seconds."""
        if self.buffer:
            return self.buffer.sample(round_)
        before = self.history[round_ - 2].metrics if 1 < round_ <= len(self.history) + 1 else {}
        began = before.get("simulated_seconds_total", 0.0) + spent_s
        return cohort(self.experiment, self.trainees, round_, self.fleet.noise, attempt, began)

    def _took_part(self, round_: int) -> list[int]:
        """Return the ids of the clients that received the parameters in a completed round."""
        attempts = int(self.history[round_ - 1].metrics.get("round_attempts", 1))
        samples, spent_s = list[Returned](), 0.0
        for attempt in range(1, attempts + 1):
            samples.append(self._sample(round_, attempt, spent_s))
            spent_s += samples[-1].seconds or 0.0
        return [client for sample in samples for client in sample.received]
