"""Sums over a round's local updates: the metrics that clients report, and the bytes that are sent."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fedtext.errors import ClientError, UserError
from fedtext.messages import Reply
from fedtext.records import RoundRecord

NOT_AVERAGED = {
    "samples",
    "seconds",
    "cpu_seconds",
    "gpu_seconds",
}  # metrics of local updates that a record does not average


@dataclass
class Traffic:
    """Sums over the replies to an attempt at a round.

    Attributes:
        cohort: Ids of the clients that train.
        late: Ids of the clients that would not return in time: their local updates are not computed.
        simulated_seconds: Simulated seconds until enough clients have returned; None: there is no such clock.
        samples: Number of train texts behind them.
        bytes_up: Bytes of the payloads.
        cpu_seconds: CPU time of the local updates.
        gpu_seconds: Wall time of the local updates that ran on a GPU; None: none did.
        started: Ids of the clients that receive the parameters; None: all of the above.
        errors: Why clients failed, by client. Nothing else is summed over these.
        by_training: Ids of those of them that failed by what their training led to (``Reply.trained``).
        sums: Metrics of the local updates, times samples.
    """

    cohort: Sequence[int] = ()
    late: Sequence[int] = ()
    simulated_seconds: float | None = None
    samples: float = 0.0
    bytes_up: int = 0
    cpu_seconds: float = 0.0
    gpu_seconds: float | None = None
    started: Sequence[int] | None = None
    errors: dict[int, str] = field(default_factory=dict)
    by_training: set[int] = field(default_factory=set)
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, reply: Reply) -> None:
        """Add the metrics of a reply without an error."""
        samples = reply.metrics["samples"]
        self.samples += samples
        self.bytes_up += reply.bytes_up
        self.cpu_seconds += reply.metrics["cpu_seconds"]
        if "gpu_seconds" in reply.metrics:
            self.gpu_seconds = (self.gpu_seconds or 0.0) + reply.metrics["gpu_seconds"]
        for name, value in reply.metrics.items():
            if name not in NOT_AVERAGED:
                self.sums[name] += samples * value

    @property
    def sampled(self) -> list[int]:
        """Ids of the clients whose updates are of this attempt, also of those that are late."""
        return [*self.cohort, *self.late]

    @property
    def received(self) -> list[int]:
        """Ids of the clients that have received the parameters."""
        return self.sampled if self.started is None else list(self.started)

    @property
    def completed(self) -> list[int]:
        """Ids of the clients that completed the round."""
        return [client for client in self.cohort if client not in self.errors]

    @property
    def failed(self) -> dict[int, bool]:
        """The clients that failed, and whether by what their training led to."""
        return {client: client in self.by_training for client in self.errors}

    @property
    def trained(self) -> int:
        """Number of clients that completed the round."""
        return len(self.cohort) - len(self.errors)


def round_metrics(
    attempts: Sequence[Traffic],
    down: int,
    pooled: bool,
    history: Sequence[RoundRecord],
    adversaries: frozenset[int] = frozenset(),
) -> dict[str, float]:
    """Return metrics of the local updates, weighted by samples, and bytes of the round and of all rounds so far.

    Args:
        attempts: The attempts at the round, of which the last succeeded.
        down: Bytes that all of them have sent to clients.
        pooled: Whether the only client that trains is at the server.
        history: The records of the earlier rounds; a resumed run has all of them.
        adversaries: Ids of the adversaries among all clients.
    """
    last, up = attempts[-1], sum(attempt.bytes_up for attempt in attempts)
    metrics: dict[str, float] = {name: total / last.samples for name, total in last.sums.items()}
    if pooled:
        up = down = 0
    metrics |= {"bytes_up": up, "bytes_down": down, "clients_trained": last.trained}
    before = history[-1].metrics if history else {}
    up_total, down_total = before.get("bytes_up_total", 0.0) + up, before.get("bytes_down_total", 0.0) + down
    metrics |= {"bytes_up_total": up_total, "bytes_down_total": down_total, "bytes_total": up_total + down_total}
    metrics["train_cpu_seconds"] = sum(attempt.cpu_seconds for attempt in attempts)
    if last.gpu_seconds is not None:
        metrics["train_gpu_seconds"] = sum(attempt.gpu_seconds or 0.0 for attempt in attempts)
    if last.trained:
        metrics["bytes_per_client"] = (up + down) / last.trained
    if failed := sum(len(attempt.errors) for attempt in attempts):
        metrics["clients_failed"] = failed
    if last.simulated_seconds is not None:
        metrics["clients_late"] = len(last.late)
        metrics["simulated_seconds"] = sum(attempt.simulated_seconds or 0.0 for attempt in attempts)
        metrics["simulated_seconds_total"] = metrics["simulated_seconds"] + before.get("simulated_seconds_total", 0.0)
        begun = sum(len(attempt.received) for attempt in attempts)
        metrics["updates_begun_total"] = begun + before.get("updates_begun_total", 0.0)
    if adversaries:
        metrics["adversaries"] = len(adversaries.intersection(last.cohort).difference(last.errors))
    if len(attempts) > 1:
        metrics["round_attempts"] = len(attempts)
    return {name: float(value) for name, value in metrics.items()}


def beside(metrics: Mapping[str, float], aggregated: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an aggregation, which are to stand beside those of the local updates.

    Raises:
        UserError: A mechanism reports one of the same name.
    """
    if twice := next((name for name in aggregated if name in metrics), ""):
        raise UserError(f"metric {twice}: server.aggregation and a mechanism of uplink both report it: rename one")
    return dict(aggregated)


def in_order(
    replies: Iterable[Reply], cohort: Sequence[int], round_: int = 0, names: Sequence[str] = ()
) -> Iterator[Reply]:
    """Yield the replies in cohort order, so that no sum depends on timing; each when all before it have arrived.

    Args:
        replies: The replies in the order in which they arrive.
        cohort: Ids of the clients that were asked.
        round_: Number of the round, for messages.
        names: Names of all clients, for messages.

    Raises:
        ClientError: A reply is of a client that was not asked or has replied already.
    """
    waiting: dict[int, Reply] = {}
    place, missing = 0, set(cohort)
    for reply in replies:
        if reply.client not in missing:
            why = "it has replied twice" if reply.client in cohort else "it has replied without being asked"
            known = 0 <= reply.client < len(names)
            raise ClientError(names[reply.client] if known else str(reply.client), round_, why)
        missing.remove(reply.client)
        waiting[reply.client] = reply
        while place < len(cohort) and cohort[place] in waiting:
            yield waiting.pop(cohort[place])
            place += 1
