"""The servers of trials, as far as the driver knows: which run, and which trials it gave up while theirs started."""

from collections.abc import Callable


class Servers:
    """Which trials are tried once more.

    Tune may start a trial in a process that another one has left. If that process dies meanwhile, Tune gives up the
    trial, whatever restarts are left.

    Attributes:
        lost: Cases whose trial was given up while its server started, to be tried once more; None: this is the second
            attempt.
    """

    def __init__(self) -> None:
        self.lost: set[str] | None = set()
        self._running: dict[str, bool] = {}  # whether the server of a case runs, or died and is to be started again

    def start(self, case_id: str) -> None:
        """Note that the server of a case runs."""
        self._running[case_id] = True

    def die(self, case_id: str) -> None:
        """Note that it has died, and is to be started again."""
        self._running[case_id] = False

    def end(self, case_id: str) -> bool | None:
        """Forget the server of a trial that has ended, and return whether it ran; None: it had not been started."""
        return self._running.pop(case_id, None)

    def retry(self, case_id: str, ran: bool | None, restarts_left: Callable[[], bool]) -> bool:
        """Return whether a trial that Tune gives up is tried once more, and add it to ``lost`` then.

        Args:
            case_id: Its case.
            ran: What ``end`` has returned.
            restarts_left: Returns whether it may be started again.
        """
        if ran or self.lost is None or case_id in self.lost or (ran is False and not restarts_left()):
            return False
        self.lost.add(case_id)
        return True
