"""Loading of experiment files, with messages that say what to do."""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fedtext.config.experiment import Experiment, use
from fedtext.config.loading import Plugin, find_plugin
from fedtext.config.overrides import Content, override, parse_overrides
from fedtext.config.problems import sentences
from fedtext.config.settings import Settings
from fedtext.config.spaces import SPACES, find, read
from fedtext.config.yaml_text import lines
from fedtext.errors import UserError, place_of_overrides
from fedtext.runtime import durable

SHOWN = 20  # problems of an experiment in a message
REQUIRED = {"name": "experiment", "corpus": "demo", "method": "fedavg"}  # in the place of those that are wrong

__all__ = ["SPACES", "find", "load", "read", "validate"]


def load(
    name: str | Path,
    overrides: Iterable[str] = (),
    changes: Mapping[str, Any] | None = None,
    more: Iterable[str | Path] = (),
) -> tuple[Content, Experiment]:
    """Read an experiment file.

    Args:
        name: A path, or the name of a file in ``tune_spaces/``.
        overrides: ``key=value`` words.
        changes: Further values by dotted key, applied after ``overrides``.
        more: Plug-ins beside those that the file lists.

    Returns:
        The file's content with all changes and its plug-ins, and the experiment it describes.

    Raises:
        UserError: The message has one sentence for each problem.
    """
    path = find(name)
    pairs = parse_overrides(overrides) | dict(changes or {})
    content = with_plugins(override(read(path), pairs), path.parent, more)
    return content, validate(content, path.name, path, pairs)


def valid_settings(
    name: str | Path, overrides: Iterable[str] = (), more: Iterable[str | Path] = ()
) -> tuple[Settings, set[str]]:
    """Return what is valid in an experiment file that ``load`` refuses.

    Args:
        name: A path, or the name of a file in ``tune_spaces/``.
        overrides: ``key=value`` words.
        more: Plug-ins beside those that the file lists.

    Returns:
        Its settings, which need not be compatible, and the first words of the keys that are wrong or missing. These
        have other values: their defaults, or those of ``REQUIRED``.

    Raises:
        UserError: The file cannot be read, or an override cannot be set.
    """
    path = find(name)
    content = override(read(path), parse_overrides(overrides))
    wrong: set[str] = set()
    try:
        content = with_plugins(content, path.parent, more)
        use(plugins_of(content))
    except UserError:
        wrong.add("plugins")
    try:
        Settings.model_validate(content)
    except ValidationError as error:
        wrong |= {str(problem["loc"][0]) for problem in error.errors(include_url=False)}
    right = {key: value for key, value in content.items() if str(key) not in wrong}
    return Settings.model_validate(REQUIRED | right), wrong


def content_of(experiment: Mapping[str, Any] | Experiment) -> Content:
    """Return the content of an experiment file: all keys of an ``Experiment``, or a copy of a mapping.

    Raises:
        UserError: It is neither.
    """
    if isinstance(experiment, Experiment):
        return experiment.model_dump(mode="json") | {"plugins": list(experiment.plugins)}
    if not isinstance(experiment, Mapping):
        raise UserError(
            f"an experiment is the path of a file, a mapping of its keys, or an Experiment, and not {experiment!r}"
        )
    return dict(experiment)


def with_plugins(content: Content, folder: Path | None = None, more: Iterable[str | Path] = ()) -> Content:
    """Return ``content`` with its plug-ins replaced by ``Plugin`` objects, which have their source.

    Args:
        content: The content of an experiment file.
        folder: The folder to which paths in it are relative; None: the working folder.
        more: Further plug-ins, with paths relative to the working folder.

    Raises:
        UserError: A plug-in does not exist.
    """
    listed = content.get("plugins") or []
    if not isinstance(listed, list):
        return content  # refused by the schema
    found = [*(find_plugin(name, folder) for name in listed), *map(find_plugin, more)]
    return content | {"plugins": list(dict.fromkeys(found))} if found else content


def use_plugins(experiment: str | Path | None, more: Iterable[str | Path]) -> None:
    """Load the plug-ins of an experiment file, if there is one, and others, so that ``--keys`` shows their parts.
    Raises UserError if one cannot be loaded."""
    path = None if experiment is None else find(experiment)
    content = with_plugins(read(path), path.parent, more) if path else with_plugins({}, None, more)
    use(plugins_of(content))


def plugins_of(content: Content) -> list[Plugin]:
    """Return the plug-ins of a content that ``with_plugins`` returned."""
    listed = content.get("plugins")
    return listed if isinstance(listed, list) else []  # the schema refuses all else


def keep_plugins(experiment: Experiment, folder: Path) -> None:
    """Write the files of an experiment's plug-ins below ``folder``, by the names that ``resolved`` gives them."""
    for plugin in experiment.plugins:
        if plugin.source is not None:
            file = folder / plugin.kept
            file.parent.mkdir(parents=True, exist_ok=True)
            durable.write(file, plugin.source)


def validate(
    content: Content, source: str = "the experiment", path: Path | None = None, overridden: Iterable[str] = ()
) -> Experiment:
    """Return the experiment in ``content``.

    Args:
        content: The content of the file, after overrides.
        source: The name of the file in messages.
        path: The file whose lines messages cite.
        overridden: Dotted keys that overrides have set; messages about them cite the overrides.

    Raises:
        UserError: The message has one sentence for each problem, with the key, its place, and the nearest valid key.
    """
    content = with_plugins(content)
    use(plugins_of(content))
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    places = {keys: f"{source}, line {line}" for keys, line in (lines(path.read_text("utf-8")) if path else {}).items()}
    words = {tuple(key.split(".")) for key in overridden}
    found = sentences(problems, content, partial(_where, source, places, words))
    left = [f"and {len(found) - SHOWN} more problems"] if len(found) > SHOWN else []
    raise UserError("\n".join([*found[:SHOWN], *left]))


def _where(
    source: str,
    places: Mapping[tuple[str, ...], str],
    words: Collection[tuple[str, ...]],
    keys: tuple[str, ...],
    message: str,
) -> str:
    """Return where the value of a key was given: in an override, in a line of the file, or in the file.

    Args:
        source: The name of the file.
        places: The lines of the file's keys, in words.
        words: The keys that overrides have set.
        keys: The key.
        message: The problem with it.
    """
    if not keys:  # about several keys: the message begins with one of them
        keys = tuple(re.split(r"[^\w.]", message.removeprefix("Value error, "))[0].split("."))
    if any(keys[: len(word)] == word[: len(keys)] for word in words):
        return place_of_overrides()
    found = (places[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in places)
    return next(found, source)


def resolved(experiment: Experiment) -> str:
    """Return the experiment with all defaults as YAML. It loads again if ``keep_plugins`` has written its plug-ins."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
