"""The doctor: what is installed and reachable, what would fail, and what to do (``python -m platform.doctor``).

Each check is a function that yields findings. Checks that need torch come after those that do not, and a cluster is
asked meanwhile.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sweeps.doctor import cluster, machine, software, tracking
from sweeps.doctor.asked import Asked
from sweeps.doctor.finding import Finding, exit_status

if TYPE_CHECKING:
    from sweeps.doctor.experiment import Nodes

__all__ = ["Asked", "Finding", "examine", "exit_status"]


def examine(asked: Asked) -> Iterator[Finding]:
    """Yield what all checks find, each as soon as it is known. Nothing is started, and nothing stays behind.

    Args:
        asked: What to look at.
    """
    address = asked.address or os.environ.get("RAY_ADDRESS")
    survey = cluster.begin(address) if address and software.version_of("ray") else None
    yield from software.installed()
    yield from tracking.reachable()
    yield from machine.hardware()
    if software.version_of("torch") is None:
        return  # said by software.installed(); all that follows imports it
    from sweeps.doctor import corpora, storage

    yield machine.compiler()
    yield from machine.gpus()
    yield from storage.written()
    data, problem = corpora.folder(asked.data)
    yield from [problem] if problem else corpora.data_files(data)
    nodes: Nodes | None = None
    if survey and address:
        yield cluster.token(os.environ)
        found = survey.result()
        nodes = [node["resources"] for node in found["nodes"]] if "nodes" in found else None
        yield from cluster.surveyed(address, found)
    else:
        yield cluster.without()
    if asked.experiment is not None:
        from sweeps.doctor import experiment

        yield from experiment.foreseen(asked, data, nodes)
