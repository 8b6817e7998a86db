"""Sums over a round's local updates: the metrics that clients report, and the bytes that are sent."""

from collections import defaultdict
from dataclasses import dataclass, field

from fedtext.messages import Reply

NOT_AVERAGED = {
    "samples",
    "seconds",
    "cpu_seconds",
    "gpu_seconds",
}  # metrics of local updates that a record does not average


@dataclass
class Traffic:
    """Sums over the replies of a round.

    Attributes:
        samples: Number of train texts behind them.
        bytes_up: Bytes of the payloads.
        cpu_seconds: CPU time of the local updates.
        gpu_seconds: Wall time of the local updates that ran on a GPU; None: none did.
        errors: Why clients failed, by client. Nothing else is summed over these.
        sums: Metrics of the local updates, times samples.
    """

    samples: float = 0.0
    bytes_up: int = 0
    cpu_seconds: float = 0.0
    gpu_seconds: float | None = None
    errors: dict[int, str] = field(default_factory=dict)
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
