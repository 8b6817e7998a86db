"""Plug-ins: Python files and installed modules that add parts to experiments.

A part is a method, mechanism, aggregation, corpus, model, audit or attack. Experiments can name the parts of the
plug-ins that are active: those of installed packages, and those that the experiment lists.
"""

import functools
import importlib.metadata
from collections.abc import Iterable

from fedtext import metrics
from fedtext.config.loading import KINDS, LISTS, Plugin, find_plugin, load_plugin
from fedtext.errors import UserError
from fedtext.schema import names_of

GROUP = "fedtext.plugins"  # entry points of packages whose plug-ins are always available

_active: tuple[Plugin, ...] = ()


@functools.cache
def installed() -> tuple[Plugin, ...]:
    """Return the plug-ins of installed packages, which every experiment can use.

    Raises:
        UserError: One cannot be loaded.
    """
    found = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            found.append(load_plugin(find_plugin(entry.module)).plugin)
        except UserError as error:
            package = entry.dist.name if entry.dist else entry.name
            raise UserError(f"{error}; it is in the package {package}: repair or uninstall it") from error
    return tuple(found)


def active() -> tuple[Plugin, ...]:
    """Return the plug-ins whose parts experiments can name now."""
    return _active


def activate(plugins: Iterable[Plugin]) -> bool:
    """Make the parts of these plug-ins and of installed ones available to experiments, and those of others unavailable.

    Returns:
        Whether anything has changed, so that ``Experiment`` must be rebuilt.

    Raises:
        UserError: A plug-in cannot be loaded, or a name is already in use.
    """
    global _active
    wanted = tuple({plugin.module: plugin for plugin in (*installed(), *plugins)}.values())
    if wanted == _active:
        return False
    _check_names(wanted)
    added = [load_plugin(plugin) for plugin in wanted]
    for each in map(load_plugin, _active):
        for kind, cls in each.parts:
            for name in names_of(cls):
                del kind.classes[name]
        for registry, appended in zip(LISTS, each.appended, strict=True):
            registry[:] = [entry for entry in registry if entry not in appended]
    for each in added:
        for kind, cls in each.parts:
            kind.classes.update(dict.fromkeys(names_of(cls), cls))
        for registry, appended in zip(LISTS, each.appended, strict=True):
            registry += appended
    metrics.find.cache_clear()
    _active = wanted
    return True


def _check_names(wanted: Iterable[Plugin]) -> None:
    """Raise UserError if two parts of a kind, or two files, have the same name."""
    active = {cls for each in map(load_plugin, _active) for _, cls in each.parts}
    owners = {(kind.word, name): "" for kind in KINDS for name, cls in kind.classes.items() if cls not in active}
    files: dict[str, Plugin] = {}
    for plugin in wanted:
        if files.setdefault(plugin.name, plugin) != plugin:
            raise UserError(f"plugins: two of them are called {plugin.name}: rename one")
        for kind, cls in load_plugin(plugin).parts:
            for name in names_of(cls):
                if (kind.word, name) in owners:
                    owner = owners[kind.word, name] or "fedtext"
                    raise UserError(
                        f"plugins: {plugin.name} defines the {kind.word} {name}, which {owner} has already: choose "
                        "another name"
                    )
                owners[kind.word, name] = plugin.name
