"""What the rounds of a trial cost: bytes, CPU time and time."""

import math
from collections.abc import Iterator, Sequence

from fedtext.records import RoundRecord


def costs(records: Sequence[RoundRecord]) -> Iterator[tuple[str, float]]:
    """Yield what the rounds of a trial cost, by the names in ``measures.COSTS``, as far as every round reports it."""
    if not records:
        return
    yield "rounds", float(records[-1].round)
    sums = {
        "bytes up": "bytes_up",
        "bytes down": "bytes_down",
        "CPU time": "train_cpu_seconds",
        "GPU time": "train_gpu_seconds",
        "training time": "train_seconds",
        "total time": "round_seconds",
    }
    for name, metric in sums.items():
        found = [record.metrics[metric] for record in records if metric in record.metrics]
        if len(found) == len(records):
            yield name, math.fsum(found)
    each = [record.metrics["bytes_per_client"] for record in records if "bytes_per_client" in record.metrics]
    if each:
        yield "bytes/client/round", math.fsum(each) / len(each)
