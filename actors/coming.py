"""Nodes that are coming: a cluster that grows when it is asked to, or to which machines are joining."""

import math
import sys
import time

from ray.autoscaler.sdk import request_resources

from actors.cluster import nodes
from actors.placement import EPSILON, counted, total

LOOK_S = 1.0  # seconds between two looks at the cluster
PATIENCE_S, AGAIN_S = 3.0, 30.0  # seconds until the first message, and between two of them


def wait_for(cpus: float | None, gpus: float | None) -> None:
    """Wait until the nodes of the cluster have this much together. A Ray autoscaler is asked for it.

    Args:
        cpus, gpus: Logical CPUs and GPUs; None: as many as there are.
    """
    wanted = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
    if _there(wanted):
        return
    request_resources(bundles=[{name: 1} for name, amount in wanted.items() for _ in range(math.ceil(amount))])
    speak_at = time.monotonic() + PATIENCE_S
    try:
        while not _there(wanted):
            if time.monotonic() >= speak_at:
                speak_at = time.monotonic() + AGAIN_S
                print(_sentence(wanted), file=sys.stderr, flush=True)
            time.sleep(LOOK_S)
    finally:  # from here on the trials say what they need; without them the autoscaler may take the nodes away
        request_resources(bundles=[])


def _there(wanted: dict[str, float]) -> bool:
    there = nodes()
    return all(total(there, name) >= amount - EPSILON for name, amount in wanted.items())


def _sentence(wanted: dict[str, float]) -> str:
    there = nodes()
    found = " and ".join(f"{total(there, name):.4g} of {counted(amount, name)}" for name, amount in wanted.items())
    have = "has" if len(there) == 1 else "have"
    return (
        f"waiting for nodes: {counted(len(there), 'node')} {have} {found}; the trials are planned when all are there "
        "(Ctrl-C ends it, `ray status` shows what is coming)"
    )
