"""From an experiment file and ``key=value`` words to an Experiment, with errors a person can act on."""

import copy
import difflib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from fedtext.errors import UserError
from fedtext.experiment import Experiment

Content = dict[str, Any]


def read(path: Path) -> Content:
    """The mapping in a YAML file. Raises UserError with the line where it is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give the path of an experiment file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8: give the path of an experiment file") from error
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: this is not YAML ({getattr(error, 'problem', error)})") from error
    except ValueError as error:  # a date that does not exist, say
        raise UserError(f"{path}: a value cannot be read ({error}); put it in quotes") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: an experiment file holds keys and values, such as `name: my-experiment`")
    return content


def parse_override(word: str) -> tuple[str, Any]:
    """``training.rounds=3`` -> ("training.rounds", 3); the value is read as YAML."""
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise UserError(f"{word!r} is not key=value: write for example training.rounds=3")
    try:
        return key, yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"the value of {key} is not YAML: {value!r}") from error


def override(content: Content, changes: Mapping[str, Any]) -> Content:
    """A copy of ``content`` with dotted keys set. A word where a mapping belongs (``method: kteps``) becomes one, and
    list entries are addressed by number (``uplink.0.gaussian.sigma``)."""
    result = copy.deepcopy(content)
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        node: Any = result
        for place, key in enumerate(parents):
            where = ".".join(parents[: place + 1])
            child = _entry(node, key, where) if isinstance(node, list) else node.get(key)
            if isinstance(child, str):
                child = {child: {}} if isinstance(node, list) else {"name": child}
            elif child is None:
                child = {}
            elif not isinstance(child, dict | list):
                raise UserError(f"{dotted} cannot be set: {where} is {child!r}, which has no keys")
            _put(node, key, child)
            node = child
        if isinstance(node, list):
            _entry(node, last, dotted)
        _put(node, last, copy.deepcopy(value))  # a later key may change what lies in it
    return result


def _entry(node: list[Any], key: str, where: str) -> Any:
    if not key.isdecimal() or int(key) >= len(node):
        raise UserError(f"{where} is not there: that list has entries 0 to {len(node) - 1}")
    return node[int(key)]


def _put(node: Any, key: str, value: Any) -> None:
    node[int(key) if isinstance(node, list) else key] = value


def validate(content: Content, source: str = "the experiment", path: Path | None = None) -> Experiment:
    """The experiment in ``content``; ``source`` names it in errors, ``path`` is the file whose lines they cite.

    Raises UserError with one sentence for each fault, naming the key, its line where the file has it, and the nearest
    valid key.
    """
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        faults = error.errors(include_url=False)
    lines = _lines(path) if path else {}
    sentences: dict[tuple[str, ...], str] = {}
    for fault in faults:  # one for each place: a value that fits none of several types is one fault
        sentences.setdefault(_user_path(fault["loc"], content), _sentence(fault, content, source, lines))
    raise UserError("\n".join(sentences.values()))


def _sentence(fault: Any, content: Content, source: str, lines: Mapping[tuple[str, ...], int]) -> str:
    keys = _user_path(fault["loc"], content)
    where = source
    for length in range(len(keys), 0, -1):
        if keys[:length] in lines:
            where = f"{source}, line {lines[keys[:length]]}"
            break
    key, kind = ".".join(keys), fault["type"]
    if kind == "extra_forbidden":
        return f"{where}: there is no key {key}{_nearest(keys[-1], _valid_keys(fault['loc'][:-1]))}"
    if kind == "missing":
        return f"{where}: the key {key} is missing"
    if kind == "union_tag_invalid":
        tag, expected = fault["ctx"]["tag"], [name.strip("' ") for name in fault["ctx"]["expected_tags"].split(",")]
        return f"{where}: {key} cannot be {tag!r}{_nearest(tag, expected)}"
    if kind == "union_tag_not_found":
        return f"{where}: {key} needs a name"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{where}: {key} holds keys and values, and here it is {fault['input']!r}"
    if kind in ("list_type", "tuple_type"):
        return f"{where}: {key} holds a list, as [a, b], and here it is {fault['input']!r}"
    message = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{where}: {key}: {message}" if key else f"{where}: {message}"


def _user_path(loc: Iterable[Any], content: Any) -> tuple[str, ...]:
    """The location as the person wrote it: without the names pydantic adds for the chosen class of a union."""
    path, node, steps = [], content, list(loc)
    for step, place in enumerate(steps, 1):
        if isinstance(node, dict) and place not in node and node.get("name") == place:
            continue
        if isinstance(node, dict) and not {place, "name"} & set(node) and step < len(steps):  # a name that was left out
            continue
        if isinstance(node, str) and node == place:
            continue
        path.append(str(place))
        if isinstance(node, dict):
            node = node.get(place)
        elif isinstance(node, list | tuple) and isinstance(place, int) and place < len(node):
            node = node[place]
    return tuple(path)


def _valid_keys(loc: Iterable[Any]) -> list[str]:
    """The keys that may stand at a location of the schema."""
    classes: list[Any] = [Experiment]
    for place in loc:
        found: list[Any] = []
        for cls in classes:
            if place in cls.model_fields:
                found += _models(cls.model_fields[place].annotation) + [
                    model for data in cls.model_fields[place].metadata for model in _models(data)
                ]
            elif isinstance(place, int) or place in _names(cls):
                found.append(cls)
        classes = found or classes
    return [key for cls in classes for key in cls.model_fields]


def _names(cls: Any) -> tuple[Any, ...]:
    """The names by which a class of a union is chosen."""
    return typing.get_args(cls.model_fields["name"].annotation) if "name" in cls.model_fields else ()


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]


def _nearest(word: str, valid: list[str]) -> str:
    close = difflib.get_close_matches(word, valid, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; valid: {', '.join(sorted(set(valid)))}"


def _lines(path: Path) -> dict[tuple[str, ...], int]:
    """The line of every key in a YAML file, by its path."""
    found: dict[tuple[str, ...], int] = {}

    def walk(node: Any, path: tuple[str, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                found[(*path, str(key.value))] = key.start_mark.line + 1
                walk(value, (*path, str(key.value)))
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                found[(*path, str(number))] = value.start_mark.line + 1
                walk(value, (*path, str(number)))

    root = yaml.compose(path.read_text(encoding="utf-8"))
    walk(root, ())
    return found


def resolved(experiment: Experiment) -> str:
    """The experiment with every default filled in, as YAML that reads back to the same experiment."""
    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def keys() -> str:
    """Every key of an experiment with its default and, where it has one, its meaning."""
    lines: list[str] = []

    def walk(cls: Any, prefix: str) -> None:
        for name, field in cls.model_fields.items():
            inner = _models(field.annotation) + [m for data in field.metadata for m in _models(data)]
            shown = "" if field.is_required() else _shown(field.get_default(call_default_factory=True))
            default = f" = {shown}" if shown else ""
            lines.append(f"{prefix}{name}{default}" + (f"   # {field.description}" if field.description else ""))
            for model in dict.fromkeys(inner):
                choice = len(inner) > 1
                if choice:
                    lines.append(f"{prefix}  [{model.model_fields['name'].default}]")
                if prefix or name != "baselines":
                    walk(model, prefix + ("    " if choice else "  "))

    walk(Experiment, "")
    return "\n".join(line for line in lines if not line.strip().startswith("name = "))


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel):
        return getattr(value, "name", "")
    return "null" if value is None else str(value)
