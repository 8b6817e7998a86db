"""Calls of client actors: their results, and the end of those that take too long."""

import time
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from actors import patience


class Caller:
    """Waits for the results of calls.

    Args:
        measured: Seconds that earlier calls took.
        hang: Seconds beyond a multiple of these after which calls are given up (``resources.hang_timeout_s``).
        timeout: The most that a step of a round may take (``resources.round_timeout_s``).
    """

    def __init__(self, measured: patience.Measured, hang: float, timeout: float) -> None:
        self.measured, self.hang, self.timeout = measured, hang, timeout

    def _get(self, calls: list[Any], timeout: float, what: str, kind: str = "") -> list[Any]:
        """Return the results of calls.

        Args:
            calls: What the calls returned.
            timeout: Seconds to wait at most.
            what: What the calls do, for messages.
            kind: Calls of a kind are given up long after the time that the last ones took; empty: they are not.

        Raises:
            HungActorsError: They are given up.
            TimeoutError: They took longer than ``timeout``.
        """
        expected, began = self.measured.calls.get(kind), time.monotonic()
        try:
            found = ray.get(calls, timeout=patience.allowed(expected, self.hang, timeout))
        except RayTaskError as error:
            raise error.cause from None  # what the client's code raised, in its own words
        except GetTimeoutError as error:
            raise self._late(kind, timeout, what) from error
        if kind and calls:
            self.measured.took(kind, time.monotonic() - began)
        return found

    def _late(self, kind: str, timeout: float, what: str) -> Exception:
        """Return the error of calls that have not returned in time, and note how long they were waited for."""
        expected = self.measured.calls.get(kind)
        limit = patience.allowed(expected, self.hang, timeout)
        if limit < timeout:
            self.measured.took(kind, limit)  # processes that have just started take longer: the next attempt waits
            late = f"{limit:.1f} s, {expected:.1f} s being expected"
            return patience.HungActorsError(f"it took longer than {late}, to {what}")
        if timeout == self.timeout:
            return TimeoutError(f"it took over resources.round_timeout_s = {timeout:g} s to {what}")
        return TimeoutError(f"it took longer than {timeout:g} s to {what}; `ray status` shows what is free")
