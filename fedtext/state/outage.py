"""An object store that fails for a while: how often a process tries again, and when it leaves the store alone."""

import time
from collections.abc import Callable
from typing import TypeVar

from fedtext.errors import OwnershipLostError, UserError

WAITS_S: tuple[float, ...] = (1.0, 4.0, 12.0)  # before each further attempt of a request
SILENCE_S = 10.0  # a request that fails after more than this got no answer: pyarrow has tried again by itself
PAUSES_S: tuple[float, ...] = (30.0, 60.0, 120.0, 300.0)  # after each copy that failed; after further ones the last

T = TypeVar("T")


class Outage:
    """The failures of a store, as far as a process knows them.

    Until a copy has failed, each of its requests is tried again after ``WAITS_S``, unless the store is silent. After
    that the store is left alone for the first of ``PAUSES_S``; the next copy tries each request once, and another
    failure lengthens the pause. A copy that succeeds ends the outage.

    Attributes:
        failed: The number of copies that have failed since one has succeeded.
    """

    def __init__(self) -> None:
        self.failed = 0
        self._until, self._error, self._last = 0.0, "", False

    def __reduce__(self) -> tuple[type["Outage"], tuple[()]]:
        """Return how another process gets one: it knows nothing of the store yet."""
        return Outage, ()

    def copy(self, attempt: Callable[[], None], last: bool = False) -> None:
        """Attempt a copy.

        Args:
            attempt: Makes the copy, its requests by ``request``.
            last: Whether none follows: it is attempted at once, and each request is tried again.

        Raises:
            OwnershipLostError: The attempt raised it.
            UserError: The attempt failed, or the store is left alone since an earlier one did.
        """
        if self.failed and not last and time.monotonic() < self._until:
            raise UserError(self._error)
        self._last = last
        try:
            attempt()
        except OwnershipLostError:
            raise
        except UserError as error:
            self._error = str(error)
            self._until = time.monotonic() + PAUSES_S[min(self.failed, len(PAUSES_S) - 1)]
            self.failed += 1
            raise
        self.failed = 0

    def request(self, attempt: Callable[[], T]) -> T:
        """Attempt a request, and again after each of ``WAITS_S`` if it fails and the store has answered.

        Returns:
            What ``attempt`` returns.
        """
        for wait in WAITS_S if self._last or not self.failed else ():
            began = time.monotonic()
            try:
                return attempt()
            except UserError:
                if time.monotonic() - began > SILENCE_S:
                    raise
                time.sleep(wait)
        return attempt()
