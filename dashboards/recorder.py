"""The thread that writes to MLflow: in the order of the calls, without a trial waiting for it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from dashboards.tracking import Tracker

# Wait for the first round at most this long: a trial whose first round takes longer is in MLflow before its end.
HOLD_SECONDS = 20.0

T = TypeVar("T")


class Recorder:
    """Calls a Tracker in a thread of its own.

    Importing MLflow and creating a database takes seconds of a core, which the processes of the first round need more
    urgently: the thread starts working when ``begin`` is called, or after ``hold`` seconds.

    Args:
        make: Creates the Tracker, in the thread, when it is first needed.
        hold: Seconds.
    """

    def __init__(self, make: Callable[[], "Tracker"], hold: float = HOLD_SECONDS) -> None:
        self._make, self._released = make, Event()
        self._tracker: Tracker | None = None
        self._lost = False
        self._thread = ThreadPoolExecutor(1, "mlflow")
        self._thread.submit(self._released.wait, hold)

    def begin(self) -> None:
        """Start working, if the thread is still waiting."""
        self._released.set()

    def call(self, what: "Callable[[Tracker], T]", failed: Callable[[Exception], None]) -> "Future[T | None]":
        """Have the tracker do something, after all earlier calls.

        Args:
            what: Called with the tracker.
            failed: Called with an exception of ``what``. If no tracker can be created it is called once, and all later
                calls do nothing.

        Returns:
            The result of ``what``; None after an exception.
        """

        def guarded() -> T | None:
            if self._lost:
                return None
            try:
                if self._tracker is None:
                    self._lost = True
                    self._tracker = self._make()
                    self._lost = False
                return what(self._tracker)
            except Exception as error:  # the thread's boundary: an exception beyond it would be lost
                failed(error)
                return None

        return self._thread.submit(guarded)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin()
        try:
            self._thread.shutdown()
        except KeyboardInterrupt:  # what is left is delivered when the run is continued
            self._lost = True
            if self._tracker:
                self._tracker.say_nothing()
            self._thread.shutdown(wait=False, cancel_futures=True)
            raise
