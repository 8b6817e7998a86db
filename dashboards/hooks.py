"""Hooks of Ray Tune, which raise nothing."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from fedtext.errors import OwnershipLostError


class Recording(Protocol):
    """A callback of Ray Tune that goes on recording after an error.

    Attributes:
        over: The error with which another command has continued the run; None: none has.
    """

    over: OwnershipLostError | None

    def faulty(self, what: str, error: Exception) -> None:
        """Print that something failed, once for each kind of exception.

        Args:
            what: Name of the hook.
            error: The exception.
        """


P = ParamSpec("P")
T = TypeVar("T", bound=Recording)


def never_raises(hook: Callable[Concatenate[T, P], None]) -> Callable[Concatenate[T, P], None]:
    """Catch everything that ``hook`` raises, and print one message for each kind of exception.

    An exception in a hook would end the whole sweep, with trials of many hours, over an error of display or recording.
    Besides, only ``failure.raised`` catches everything. An OwnershipLostError is to end the sweep: the end of the step
    raises it, since Tune takes an exception of other hooks for one of the trial.
    """

    @functools.wraps(hook)
    def guarded(self: T, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            hook(self, *args, **kwargs)
        except OwnershipLostError as error:
            self.over = error
        except Exception as error:
            self.faulty(hook.__name__, error)

    return guarded
