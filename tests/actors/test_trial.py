"""What a trial does about the copy of its run at a URI."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.trial import Assignment, copied
from fedtext.errors import OwnershipLostError, UserError


class Away:
    """A copy of which each attempt to bring it up to date ends in the next of some ways."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)

    def push(self, *parts: str, checkpoints: bool) -> None:
        assert (parts, checkpoints) == (("00-a",), True)
        if error := self.ends.pop(0):
            raise error


def assignment(copy: Any) -> Assignment:
    nothing: Any = SimpleNamespace()
    return Assignment(nothing, nothing, nothing, Path("/runs/first/00-a"), copy)


def test_a_store_that_fails_for_a_while_ends_no_trial() -> None:
    trial = assignment(Away(UserError("the store does not answer"), None))
    assert copied(trial).startswith("the store does not answer; training goes on, and it is tried again later")
    assert copied(trial) == ""
    assert copied(assignment(None)) == ""


def test_a_run_that_another_command_has_continued_ends_the_trial() -> None:
    with pytest.raises(OwnershipLostError, match="another command has continued"):
        copied(assignment(Away(OwnershipLostError("another command has continued"))))
