"""The progress of all trials, without its display."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from actors.placement import counted
from actors.waiting import Use
from dashboards.trial import Case, Ended, State, one_line, title
from fedtext.metrics.wording import FACTS, data_size, duration
from fedtext.records import RoundRecord

RECENT_ROUNDS = 5  # the rounds from which the time of the next ones is estimated


@dataclass
class Standing:
    """The progress of one trial. Bytes are sums over its rounds and clients; times are in seconds."""

    name: str
    rounds: int
    state: State = "waiting"
    message: str = ""
    round: int = 0
    evaluated: int = 0  # the last round that was evaluated
    values: dict[str, float] = field(default_factory=dict)
    bytes_up: float = 0.0
    bytes_down: float = 0.0
    times: list[float] = field(default_factory=list)
    moment: float | None = None  # unix time of the last record
    spoken: float = float("-inf")  # when its last line was printed

    def add(self, record: RoundRecord) -> bool:
        """Add a record. Returns False if its round was known."""
        if record.round <= self.round:
            return False
        metrics = {name: value for name, value in record.metrics.items() if value is not None}
        seconds = metrics.get("round_seconds")
        if seconds is None and self.moment is not None and record.round == self.round + 1:
            seconds = record.time - self.moment
        if seconds is not None:
            self.times.append(seconds)
        self.round, self.moment = record.round, record.time
        self.evaluated = record.round if metrics.keys() & set(FACTS) else self.evaluated
        self.values.update(metrics)
        self.bytes_up += metrics.get("bytes_up", 0)
        self.bytes_down += metrics.get("bytes_down", 0)
        return True

    @property
    def pace(self) -> float | None:
        """Mean seconds per round of the last rounds."""
        recent = self.times[-RECENT_ROUNDS:]
        return sum(recent) / len(recent) if recent else None

    @property
    def eta(self) -> float | None:
        """Estimated seconds until the last round."""
        if self.state != "running" or self.pace is None:
            return None
        return self.pace * (self.rounds - self.round)


class Board:
    """The progress of every trial."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self.standings: dict[str, Standing] = {}
        self.more = 0  # trials of a search that are not known yet
        self.began = time.monotonic()
        self.use: Use | None = None  # of the cluster, when it was last looked at
        self.why = ""  # what the next trial waits for, a sentence; empty: none waits for the cluster
        for case in cases:
            self._known(case)

    def _known(self, case: Case) -> Standing:
        rounds = case.experiment.training.rounds
        return self.standings.setdefault(case.id, Standing(title(case), rounds))

    def plan(self, case: Case) -> None:
        """Add a trial that a search has suggested."""
        self._known(case)

    def start(self, case: Case, records: Iterable[RoundRecord] = ()) -> None:
        """Note that a trial starts, or continues after ``records``."""
        standing = self._known(case)
        standing.name = title(case)  # a member of a population may go on with other values
        standing.state, standing.message = "running", ""
        for record in records:
            standing.add(record)

    def row(self, case_id: str, record: RoundRecord) -> None:
        """Add the record of a completed round."""
        self.standings[case_id].add(record)

    def finish(self, case_id: str, state: Ended, message: str = "") -> None:
        """Note that a trial ended.

        Args:
            case_id: Id of its case.
            state: How it ended.
            message: The cause of a failure, or why it was stopped.
        """
        standing = self.standings[case_id]
        standing.state, standing.message = state, one_line(message)

    def restore(self, case: Case, records: Iterable[RoundRecord], state: Ended, message: str = "") -> None:
        """Add a trial that ended in an earlier process.

        Args:
            case: The trial's case.
            records: Its records.
            state: How it ended.
            message: The cause of a failure, or why it was stopped.
        """
        Board.start(self, case, records)
        Board.finish(self, case.id, state, message)

    def look(self, use: Use, why: str) -> None:
        """Note how the cluster is used.

        Args:
            use: Its use.
            why: What the next trial waits for; empty if it does not wait for the cluster.
        """
        self.use, self.why = use, why

    def waiting(self) -> str:
        """Return how many trials wait, and for what; empty if none does."""
        states = [standing.state for standing in self.standings.values()]
        if not (count := states.count("waiting")):
            return ""
        trials = "1 trial waits" if count == 1 else f"{count} trials wait"
        until = "a running trial ends" if "running" in states else "the first one's processes have started"
        why = self.why.removeprefix("waiting ") or f"until {until}"
        return f"{trials}: {why}" if self.why else f"{trials} {why}"

    def cluster(self) -> str:
        """Return how the cluster is used: ``cluster: 1 node, 2 of 2 CPUs, object store 12 MB of 2.1 GB``."""
        if (use := self.use) is None:
            return ""
        parts = [counted(use.nodes, "node"), f"{use.cpus:.4g} of {counted(use.all_cpus, 'CPU')}"]
        parts += [f"{use.gpus:.4g} of {counted(use.all_gpus, 'GPU')}"] if use.all_gpus else []
        parts.append(f"object store {data_size(use.store)} of {data_size(use.all_store)}")
        return f"cluster: {', '.join(parts)}"

    def failures(self) -> list[str]:
        """Return why trials failed, a sentence each."""
        failed = [standing for standing in self.standings.values() if standing.state == "failed"]
        return [f"{standing.name} failed: {standing.message or 'without saying why'}" for standing in failed]

    def summary(self) -> str:
        """Return ``2 of 6 trials done, 3 running, 1 failed, 1 min 10 s elapsed``."""
        states = [standing.state for standing in self.standings.values()]
        done = sum(state in ("finished", "stopped", "failed") for state in states)
        parts = [f"{done} of {len(states) + self.more} trials done"]
        parts += [f"{states.count(state)} {state}" for state in ("running", "failed") if state in states]
        return ", ".join([*parts, f"{duration(time.monotonic() - self.began)} elapsed"])
