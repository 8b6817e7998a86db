"""An experiment: compatible settings, and the plug-ins that define parts of them."""

from collections.abc import Iterable
from typing import Any

from pydantic import model_validator

from fedtext.config import plugins
from fedtext.config.compatibility import problems
from fedtext.config.loading import Plugin, defining, load_plugin, only_audits
from fedtext.config.sections import Adversaries, Server
from fedtext.config.settings import Settings


class Experiment(Settings):
    """The content of an experiment file. With a ``space`` it can be swept; without one it is a single run."""

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        for problem in problems(self):
            raise ValueError(problem)
        return self

    @property
    def all_plugins(self) -> tuple[Plugin, ...]:
        """The plug-ins that it lists, and those of installed packages that define a part of it."""
        return tuple(self.keys_of_plugins)

    @property
    def keys_of_plugins(self) -> dict[Plugin, str]:
        """Each of ``all_plugins`` with the key by which it is needed: ``plugins`` if it is listed."""
        parts: list[tuple[str, Any]] = [("corpus", self.corpus), ("model", self.model), ("method", self.method)]
        for key in ("uplink", "audits", "baselines"):
            parts += [(key, part) for part in getattr(self, key)]
        parts.append(("server.aggregation", self.aggregation))
        parts += [("adversaries.attack", self.adversaries.attack)] if self.adversaries else []
        used = ((key, defining(type(part))) for key, part in parts)
        found: dict[str, tuple[Plugin, str]] = {}
        for key, plugin in used:
            if plugin:
                found.setdefault(plugin.module, (plugin, key))
        found |= {plugin.module: (plugin, "plugins") for plugin in self.plugins}  # a file may have another name there
        return dict(found.values())

    @property
    def training_plugins(self) -> tuple[Plugin, ...]:
        """The plug-ins on which training depends: those of ``all_plugins`` that define more than audits."""
        return tuple(plugin for plugin in self.all_plugins if not only_audits(plugin))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the plug-ins too. They are loaded before the parts that need them."""
        return _unpickled, (type(self), self.all_plugins), self.__getstate__()


def _unpickled(cls: type[Experiment], needed: Iterable[Plugin]) -> Experiment:
    for plugin in needed:
        load_plugin(plugin)
    return cls.__new__(cls)


def use(chosen: Iterable[Plugin]) -> None:
    """Make the parts of these plug-ins, and of installed ones, available to experiments.

    Raises:
        UserError: A plug-in cannot be loaded, or a name is already in use.
    """
    if plugins.activate(chosen):
        for changed in (Server, Adversaries, Settings, Experiment):
            changed.model_rebuild(force=True)
