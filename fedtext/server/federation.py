"""The loop over rounds, against the interface Fleet: independent of Ray, of processes, and of the place of clients."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from fedtext.aggregations import IndividualAggregation
from fedtext.config.experiment import Experiment
from fedtext.errors import ClientError, UserError
from fedtext.evaluation import SPLITS, curves, pooled
from fedtext.layout import TABLE, Layout, finite
from fedtext.ledger import FILE, Entry, ledger, spent, text
from fedtext.messages import Reply, Update
from fedtext.records import RoundRecord
from fedtext.server.aggregation import Summation
from fedtext.server.downlink import Downlink
from fedtext.server.fleet import ClientInfo, FleetT
from fedtext.server.method_state import PREFIX, MethodState
from fedtext.server.noise import add_noise, deviation, expected
from fedtext.server.optimizers import Moments, step
from fedtext.server.sampling import sampled
from fedtext.server.selection import best_round, reached
from fedtext.server.traffic import Traffic
from fedtext.state.checkpoint import Checkpoints
from fedtext.wire.decoder import Decoder


class Federation(Generic[FleetT]):
    """The server of one experiment, and the loop over rounds. It continues from the last checkpoint, if there is one.

    Args:
        experiment: The experiment.
        shared: The shared parameters before the first round, tables with all rows.
        fleet: The clients.
        checkpoints: Where the state is saved; None: it is not.

    Raises:
        UserError: More rounds are completed than ``training.rounds``, or the checkpoint cannot be used.
    """

    def __init__(
        self,
        experiment: Experiment,
        shared: dict[str, NDArray[np.float32]],
        fleet: FleetT,
        checkpoints: Checkpoints | None,
    ) -> None:
        self.experiment, self.fleet, self.checkpoints = experiment, fleet, checkpoints
        self.layout = Layout({name: tensor.shape for name, tensor in shared.items()})
        self.flat = self.layout.pack(shared)
        self.history: list[RoundRecord] = []
        self.decoder = Decoder(experiment, self.layout)
        self.summation = Summation(experiment, self.decoder.sent, [client.samples for client in fleet.clients])
        self.names = {client.id: client.name for client in fleet.clients}
        trainees = fleet.clients[-1:] if experiment.method.pooled else fleet.clients
        self.trainees: Sequence[ClientInfo] = trainees
        self.deviation = deviation(experiment, len(trainees))  # of the server's noise
        self.moments: Moments = {}
        self.choosing = experiment.evaluation.select != "last"
        self.selected: NDArray[np.float32] | None = None  # the best model so far
        snapshot = checkpoints.load() if checkpoints else None
        if snapshot:
            self.flat, self.history = snapshot.flat, list(snapshot.history)
            self.moments = {name: tensor for name, tensor in snapshot.moments.items() if not name.startswith(PREFIX)}
            if self.choosing:
                self.selected = self.flat if snapshot.selected is None else snapshot.selected
            fleet.restore(snapshot.clients)
        self.beside = MethodState(experiment.method, shared, snapshot.moments if snapshot else None)
        self.downlink = Downlink(experiment, self.beside.received, self._sample)
        if len(self.history) > experiment.training.rounds:
            raise UserError(
                f"training.rounds: {len(self.history)} rounds are completed, more than {experiment.training.rounds}: "
                "set as many or more, or start a new run"
            )

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """The shared parameters as named tensors."""
        return self.layout.views(self.flat)

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
            cohort = self._sample(round_)
            traffic = Traffic()
            updates = self._updates(in_order(self.fleet.train(handle, round_, cohort), cohort), round_, traffic)
            before = self.flat
            self.flat, aggregated = self._aggregate(updates, round_)
            if not finite(self.flat):
                raise UserError(
                    f"the parameters after round {round_} are not finite, although all that clients sent was: lower "
                    "server.optimizer.lr or training.optimizer.lr, or the noise"
                )
            self._keep_unsent(before, round_)
            del handle  # frees the memory of the last broadcast
            handle = self._broadcast()
            last = round_ == rounds
            seconds = time.perf_counter() - start
            metrics = self._metrics(cohort, round_, traffic) | dict(aggregated) | spent(self.ledger(round_))
            metrics["train_seconds"] = seconds
            record = RoundRecord(round_, time.time(), metrics)
            self.history.append(record)
            if self.experiment.evaluates(round_):
                self._evaluate(handle, record)
            metrics["round_seconds"], record.time = time.perf_counter() - start, time.time()
            if budget != told:
                record.files[FILE] = told = budget
            if last:
                record.files |= self._files(handle, record.clients)
            if self.checkpoints and (last or round_ % self.experiment.checkpoint.every == 0):
                selected = None if self.selected is self.flat else self.selected
                kept = self.moments | self.beside.to_keep()
                self.checkpoints.save(self.flat, self.fleet.private_states(), self.history, kept, selected)
            yield record

    def _broadcast(self) -> Any:
        """Give the parameters, with the server's state if clients receive it, to the fleet."""
        return self.fleet.broadcast(self.beside.with_state(self.flat))

    def ledger(self, rounds: int) -> list[Entry]:
        """Return the guarantees of a run of this many rounds."""
        return ledger(self.experiment, self.coordinates, len(self.trainees), rounds)

    @property
    def coordinates(self) -> int:
        """Number of coordinates that a client sends."""
        return self.decoder.sent.numbers

    def _sample(self, round_: int) -> list[int]:
        """Return the ids of the clients that train in a round."""
        return sampled(self.experiment, [client.id for client in self.trainees], round_, self.fleet.noise)

    def _updates(self, replies: Iterable[Reply], round_: int, traffic: Traffic) -> Iterator[Update]:
        """Decode each reply's payload, and add up its metrics. An invalid payload is an error of its client."""
        for reply in replies:
            error, update = reply.error, None
            if reply.payload.size and not error:
                try:
                    update = self.decoder.update(reply.payload, reply.client, self.flat, round_)
                    self.summation.check_size(update)
                except ValueError as refused:
                    error = str(refused)
            if error:
                if self.experiment.participation.on_client_error == "fail":
                    raise ClientError(self.names[reply.client], round_, error)
                traffic.errors[reply.client] = error
                continue
            traffic.add(reply)
            if update:
                yield update

    def _aggregate(self, updates: Iterator[Update], round_: int) -> tuple[NDArray[np.float32], Mapping[str, float]]:
        """Return the parameters after a round, and the metrics of the aggregation.

        A round without participants leaves the parameters unchanged, but for the server's noise.
        """
        aggregation, optimizer = self.experiment.aggregation, self.experiment.server.optimizer
        metrics: Mapping[str, float] = {}
        if isinstance(aggregation, IndividualAggregation):
            first = next(updates, None)
            if first is None:
                return self.flat, metrics
            weights: list[float] = []
            given = self._weighed(chain([first], updates), weights)
            aggregated, metrics = aggregation.aggregate(self.state, given, self.summation.weight)
            state = self.layout.pack(aggregated)
            for _ in given:  # the aggregation may not use all of them, but all have been sent
                pass
            if optimizer.plain and not self.beside.steps:
                return state, metrics
            change, weight = np.subtract(state, self.flat, dtype=np.float64), sum(weights)
        else:
            total = self.summation.empty()
            for update in updates:
                total.add(update)
            for part in self.fleet.partials(round_):
                total.merge(part)
            count = expected(self.experiment, len(self.trainees)) if self.deviation else None
            mean = total.mean(count)
            if mean is None:
                return self.flat, metrics
            if self.deviation:
                add_noise(mean, self.decoder.sent, self.deviation, self.fleet.noise, round_)
            change, metrics, weight = mean, total.metrics(), count or total.weight
        change = self.beside.step(change, weight / self.summation.scale)
        flat, self.moments = step(optimizer, self.flat, change, self.moments)
        return flat, metrics

    def _keep_unsent(self, before: NDArray[np.float32], round_: int) -> None:
        """Give what no client has sent the value that it had before the round."""
        if self.flat is before:  # a round without participants; after a resumption it is read-only
            return
        now, then = self.layout.views(self.flat), self.layout.views(before)
        if self.fleet.withheld is not None:  # updates have only a mechanism's noise in these rows
            now[TABLE][self.fleet.withheld] = then[TABLE][self.fleet.withheld]
        for name in self.layout.shapes:
            if not self.experiment.method.shared_in(name, round_):  # momentum or the server's noise would move it
                now[name][...] = then[name]

    def _weighed(self, updates: Iterable[Update], weights: list[float]) -> Iterator[Update]:
        """Yield the updates, and append their weights to ``weights``."""
        for update in updates:
            weights.append(self.summation.weight(update))
            yield update

    def _evaluate(self, handle: Any, record: RoundRecord) -> None:
        """Evaluate on all clients' texts; with ``evaluation.select`` test texts only once, by the selected model."""
        config, last = self.experiment.evaluation, record.round == self.experiment.training.rounds
        self._evaluate_fleet(handle, record, ("validation",) if self.choosing else SPLITS, last and not self.choosing)
        record.metrics |= reached(self.history, config.thresholds)
        if not self.choosing:
            return
        best = best_round(self.history, config.select)
        if best == record.round:
            self.selected = self.flat
        if last:
            if not best or self.selected is None:
                raise UserError(f"evaluation.select: no round has a {config.select}: lower training.optimizer.lr")
            theirs = handle if self.selected is self.flat else self.fleet.broadcast(self.selected)
            self._evaluate_fleet(theirs, record, SPLITS, final=True)
            record.metrics["selected_round"] = float(best)

    def _evaluate_fleet(self, handle: Any, record: RoundRecord, splits: Sequence[str], final: bool) -> None:
        """Add to the record each client's metrics, means (KTEPS paper, equation 15), pooled metrics and baselines."""
        evaluations = dict(sorted(self.fleet.evaluate(handle, record.round, final, splits).items()))
        for client, evaluated in evaluations.items():
            record.clients.setdefault(self.names[client], {}).update(evaluated.metrics)
        for name in sorted({name for evaluated in evaluations.values() for name in evaluated.metrics}):
            values = [evaluated.metrics[name] for evaluated in evaluations.values() if name in evaluated.metrics]
            record.metrics[name] = float(sum(values) / len(values))
        record.metrics |= pooled(list(evaluations.values()))
        if final and self.experiment.evaluation.personalize:
            record.curves |= curves(list(evaluations.values()), self.experiment.evaluation.personalize.every)
        for name, value in self.fleet.baselines.items():
            if ("validation" if name.endswith("_val") else "test") in splits:
                record.metrics[name] = value

    def _files(self, handle: Any, scores: dict[str, dict[str, float]]) -> dict[str, str]:
        """Return the files of audits for one client, the first for which they have metrics."""
        found = {name for audit in self.experiment.audits for name in audit.metrics}
        shown = [client for client, name in self.names.items() if found & set(scores.get(name, ()))]
        return self.fleet.report(handle, min(shown)) if shown else {}

    def _metrics(self, cohort: Sequence[int], round_: int, traffic: Traffic) -> dict[str, float]:
        """Return metrics of the local updates, weighted by samples, and bytes of the round and of all rounds so far."""
        metrics = {name: total / traffic.samples for name, total in traffic.sums.items()}
        trained = len(cohort) - len(traffic.errors)
        up, down = traffic.bytes_up, self.downlink.size([self.fleet.clients[client] for client in cohort], round_)
        if self.experiment.method.pooled:  # the only client that trains is at the server
            up = down = 0
        metrics |= {"bytes_up": up, "bytes_down": down, "clients_trained": trained}
        rounds = [*(record.metrics for record in self.history), metrics]  # a resumed run has its whole history
        up_total, down_total = (sum(row[name] for row in rounds) for name in ("bytes_up", "bytes_down"))
        metrics |= {"bytes_up_total": up_total, "bytes_down_total": down_total, "bytes_total": up_total + down_total}
        metrics["train_cpu_seconds"] = traffic.cpu_seconds
        if traffic.gpu_seconds is not None:
            metrics["train_gpu_seconds"] = traffic.gpu_seconds
        if trained:
            metrics["bytes_per_client"] = (up + down) / trained
        if traffic.errors:
            metrics["clients_failed"] = len(traffic.errors)
        return {name: float(value) for name, value in metrics.items()}


def in_order(replies: Iterable[Reply], cohort: Sequence[int]) -> Iterator[Reply]:
    """Yield the replies in cohort order, so that no sum depends on timing; each when all before it have arrived."""
    waiting, due = {}, iter(cohort)
    wanted = next(due, None)
    for reply in replies:
        waiting[reply.client] = reply
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted = next(due, None)
