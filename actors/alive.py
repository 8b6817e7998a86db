"""Whether Ray can still be used: its process on this machine (the raylet), and the head of its cluster."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil
import ray

from actors.pulse import BEAT_S, repeated

HEAD_S = 50.0  # without an answer of the head; Ray itself would wait 60 s, and then end this process
ANSWER_S = 5.0  # within which the head has to answer
LOOK_S = BEAT_S + ANSWER_S  # for which one look counts at most, so that a machine that slept has lost nothing


class Silence:
    """For how long something that is looked at again and again has not answered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._seconds, self._looked = clock, 0.0, clock()

    def after(self, answer: bool) -> float:
        """Return the seconds of silence after a look.

        Args:
            answer: Whether it has answered.
        """
        now = self._clock()
        self._seconds = 0.0 if answer else self._seconds + min(now - self._looked, LOOK_S)
        self._looked = now
        return self._seconds


@contextmanager
def watching_ray(lost: Callable[[str], object]) -> Iterator[None]:
    """Call ``lost`` with a sentence if Ray dies during the block, before Ray ends this process.

    Args:
        lost: Is called in a thread. Whatever waits for Ray in other threads may wait forever.
    """
    raylet, head = _raylet(), ray.get_runtime_context().gcs_address
    silence = Silence()

    def look() -> None:
        if raylet and not _runs(raylet):
            lost(f"Ray's process on this machine (raylet, process {raylet.pid}) has died")
        if silence.after(_answers(head)) > HEAD_S:
            lost(f"the head of the Ray cluster ({head}) has not answered for {HEAD_S:g} s")

    with repeated(look):
        yield


def _raylet() -> psutil.Process | None:
    """Return the raylet that this process is connected to; None if it is not to be seen, as from a container."""
    own = ray.get_runtime_context().get_node_id()
    (socket_name,) = (node["RayletSocketName"] for node in ray.nodes() if node["NodeID"] == own)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "raylet" and any(word.endswith(f"={socket_name}") for word in process.cmdline()):
                return process
    return None


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _answers(address: str) -> bool:
    """Whether something listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except OSError:
        return False
    return True
