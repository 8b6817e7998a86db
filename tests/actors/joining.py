"""The second actor of a trial joins it later, as on a node that has joined."""

from typing import Any

import pytest
import ray

from actors import crew
from actors.placement import Plan


class Joining:
    """Withholds the second of two actors from each trial.

    Attributes:
        now: Whether it joins.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.hire = False, crew.hire
        monkeypatch.setattr(crew, "hire", self._hire)
        monkeypatch.setattr(crew, "fill", self._fill)

    def _hire(self, plan: Plan, group: None, later: dict[int, float]) -> list[Any]:
        first, self.second = self.hire(plan, group, later)
        return [first, None]

    def _fill(self, hired: list[Any], newcomers: crew.Newcomers, *_: Any) -> dict[int, tuple[Any, Any]]:
        due = self.now and hired[1] is None
        return {1: (self.second, ray.get(newcomers.begin(self.second)))} if due else {}
