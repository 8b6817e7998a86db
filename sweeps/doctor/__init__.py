"""The doctor: what is installed and reachable, what would fail, and what to do (``python -m platform.doctor``).

Each check is a function that yields findings. Checks that need torch come after those that do not, and a cluster is
asked meanwhile.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from actors.address import named
from sweeps.doctor import cluster, machine, software, tracking
from sweeps.doctor.asked import Asked
from sweeps.doctor.finding import Finding, exit_status

if TYPE_CHECKING:
    from sweeps.doctor.experiment import Nodes

__all__ = ["Asked", "Finding", "examine", "exit_status"]


def examine(asked: Asked) -> Generator[Finding, None, None]:
    """Yield what all checks find, each as soon as it is known.

    Probes are removed again. Compiled libraries, and a corpus that is read from the hub, stay in the cache.

    Args:
        asked: What to look at.
    """
    address = named(asked.address)
    if not address or software.version_of("ray") is None:
        yield from _examined(asked, None)
        return
    with closing(cluster.begin(address)) as survey:
        yield from _examined(asked, survey)


def _examined(asked: Asked, survey: cluster.Survey | None) -> Iterator[Finding]:
    """Yield what all checks find. ``survey``: that of the cluster, if one is named."""
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
    if survey:
        yield cluster.token(os.environ)
        found = survey.result()
        nodes = [node["resources"] for node in found["nodes"]] if "nodes" in found else None
        yield from cluster.surveyed(survey.address, found)
    else:
        yield cluster.without()
    if asked.experiment is not None:
        from sweeps.doctor import experiment

        yield from experiment.foreseen(asked, data, nodes)
