"""MLflow's thread: what is to stand there is sent in the order it came, and no trial waits for it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from dashboards.tracking import Tracker

# Of patience for the first round: one that takes longer is to be seen in MLflow before it is over.
HOLD_SECONDS = 20.0

T = TypeVar("T")


class Recorder:
    """Calls a Tracker, which ``make`` makes in the thread when it is first needed.

    To import MLflow and to make a new database takes seconds of a core, which the processes of the first round need
    more urgently: the thread begins when it is told that a round is there, or after ``hold`` seconds.
    """

    def __init__(self, make: Callable[[], "Tracker"], hold: float = HOLD_SECONDS) -> None:
        self._make, self._released = make, Event()
        self._tracker: Tracker | None = None
        self._lost = False
        self._thread = ThreadPoolExecutor(1, "mlflow")
        self._thread.submit(self._released.wait, hold)

    def begin(self) -> None:
        """There is no longer anything to wait for."""
        self._released.set()

    def call(self, what: "Callable[[Tracker], T]", failed: Callable[[Exception], None]) -> "Future[T | None]":
        """Has the tracker do something, after all that it was asked for before. ``failed`` is told what that met. Where
        there can be no tracker this is told once, and nothing is done any more."""

        def guarded() -> T | None:
            if self._lost:
                return None
            try:
                if self._tracker is None:
                    self._lost = True
                    self._tracker = self._make()
                    self._lost = False
                return what(self._tracker)
            except Exception as error:  # the thread's boundary: nobody would see it here
                failed(error)
                return None

        return self._thread.submit(guarded)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin()
        self._thread.shutdown()
