"""An experiment: settings that go together, and the plug-ins that define parts of them."""

from collections.abc import Iterable
from typing import Any

from pydantic import model_validator

from fedtext.config import plugins
from fedtext.config.compatibility import problems
from fedtext.config.plugins import Plugin
from fedtext.config.sections import Server
from fedtext.config.settings import Settings


class Experiment(Settings):
    """One experiment file. With a ``space`` it can be swept; without, it is one run."""

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        for problem in problems(self):
            raise ValueError(problem)
        return self

    @property
    def all_plugins(self) -> tuple[Plugin, ...]:
        """The plug-ins that it lists, and those of installed packages that define a part of it."""
        parts = (self.corpus, self.model, self.method, *self.uplink, *self.audits, *self.baselines, self.aggregation)
        used = (plugins.defining(type(part)) for part in parts)
        found = {plugin.module: plugin for plugin in used if plugin}  # a text can have been loaded by another name
        return tuple((found | {plugin.module: plugin for plugin in self.plugins}).values())

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle brings the plug-ins, which are loaded before anything that needs them."""
        return _unpickled, (type(self), self.all_plugins), self.__getstate__()


def _unpickled(cls: type[Experiment], needed: Iterable[Plugin]) -> Experiment:
    for plugin in needed:
        plugins.load(plugin)
    return cls.__new__(cls)


def use(chosen: Iterable[Plugin]) -> None:
    """Let experiments that are made from here on have the parts of these plug-ins, and of installed ones.

    Raises:
        UserError: If a plug-in cannot be loaded, or a name is taken.
    """
    if plugins.activate(chosen):
        for changed in (Server, Settings, Experiment):
            changed.model_rebuild(force=True)
