"""Sentences on the problems of an experiment that pydantic has found, in the words of its file."""

import difflib
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from fedtext.config.experiment import Experiment
from fedtext.config.loading import KINDS
from fedtext.schema import classes_of, fields_of, names_of


def sentences(
    problems: Sequence[Any], content: Mapping[str, Any], where: Callable[[tuple[str, ...], str], str]
) -> list[str]:
    """Return a sentence for each problem, with the key, its place, and the nearest valid key.

    Args:
        problems: The problems, as ``ValidationError.errors`` returns them.
        content: The content of the experiment's file, after overrides.
        where: Returns where a key was given, from the key and the message of its problem.
    """
    inside = {problem["loc"] for problem in problems}
    by_key: dict[tuple[tuple[str, ...], bool], list[Any]] = {}
    for problem in problems:
        if not _follows(problem, inside):
            of_key = problem["loc"][-1:] == ("[key]",)  # of a mapping: not its value is wrong, but the key itself
            by_key.setdefault((_user_path(problem["loc"], content), of_key), []).append(problem)
    paths = {keys for keys, of_key in by_key if not of_key}
    return [
        f"{where(keys, found[0]['msg'])}: {_sentence(found, keys)}"
        for (keys, of_key), found in by_key.items()
        if of_key or not _of_another_type(keys, found, paths)
    ]


def _follows(problem: Any, places: Collection[tuple[int | str, ...]]) -> bool:
    """Whether a list is too short for the wrong entries alone that it has."""
    where = problem["loc"]
    return problem["type"] == "too_short" and any(other[: len(where)] == where != other for other in places)


def _sentence(problems: Sequence[Any], keys: tuple[str, ...]) -> str:
    """Return what is wrong with a key; a value that fits none of several types has a problem with each."""
    problem, key = problems[0], ".".join(keys)
    kind = problem["type"]
    if kind == "extra_forbidden" and keys[-1] != str(problem["loc"][-1]):  # {clip: 1}: schema.py calls the 1 "value"
        return f"{key} must have keys and values, but here it is {problem['input']!r}"
    if kind == "extra_forbidden":
        return f"there is no key {key}{_suggested(keys, problem['loc'])}"
    if kind == "missing":
        return f"the key {key} is missing"
    if kind == "union_tag_invalid":
        tag, expected = problem["ctx"]["tag"], [name.strip("' ") for name in problem["ctx"]["expected_tags"].split(",")]
        return f"{key} cannot be {tag!r}{_of_a_plugin(expected)}{_nearest(tag, expected)}"
    if kind == "union_tag_not_found":
        return _unnamed(key, problem["input"])
    if kind == "invalid_key":
        within = f" of {'.'.join(keys[:-1])}" if len(keys) > 1 else ""
        read = f"a key{within} is {problem['input']} for YAML, and no text (yes, no, on and off are true and false)"
        return f"{read}: put it in quotes, if it is a key at all"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{key} must have keys and values, but here it is {problem['input']!r}"
    if kind in ("list_type", "tuple_type"):
        return f"{key} must be a list, as [a, b], but here it is {problem['input']!r}"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if _about_type(kind):
        wanted = [other["msg"].partition(", unable")[0] for other in problems if _about_type(other["type"])]
        choices = " or ".join(dict.fromkeys(each.removeprefix("Input should be ") for each in wanted))
        choices = choices.replace("a valid tuple", "a list")
        message = f"should be {choices}, but here it is {problem['input']!r}"
    return f"{key}: {message}" if key else message


def _of_a_plugin(valid: Sequence[str]) -> str:
    """Return how other names than the valid ones come to be, if they are those of parts that plug-ins can define."""
    extensible = any(set(kind.classes) <= set(valid) for kind in KINDS)
    return " without a plug-in that defines it (--plugin FILE, or plugins: [FILE])" if extensible else ""


def _unnamed(key: str, value: Any) -> str:
    """Return what is wrong with a part that has no name: a list's entry has two, or keys beside its name."""
    known = {name for kind in KINDS for name in kind.classes}
    names = [name for name in value if name in known] if isinstance(value, Mapping) else []
    if len(names) > 1:
        return f"{key} has {' and '.join(names)}, and an entry is one of them: begin each with a - of its own"
    return f"{key} needs a name" + (f": write {{name: {names[0]}, ...}}, with its keys behind it" if names else "")


def _of_another_type(keys: tuple[str, ...], problems: Sequence[Any], others: Iterable[tuple[str, ...]]) -> bool:
    """Whether the problems of a value are only that it is not of one type that its key accepts, and there are problems
    within the value, which therefore is of another type that the key accepts."""
    within = any(len(other) > len(keys) and other[: len(keys)] == keys for other in others)
    return within and all(_about_type(problem["type"]) for problem in problems)


def _about_type(kind: str) -> bool:
    return kind == "literal_error" or kind.endswith(("_parsing", "_type"))


def _user_path(loc: Iterable[Any], content: Any) -> tuple[str, ...]:
    """Return the location of a key in the file: without the names that pydantic adds for the class of a union."""
    steps = [place for place in loc if place != "[key]"]  # of a mapping whose key is wrong
    path: list[str] = []
    node, parent, tagged = content, None, False
    for step, place in enumerate(steps, 1):
        within = step < len(steps)
        tag = bool(path) and isinstance(node, dict) and node.get("name") == place  # the name of an experiment is none
        if tag and (place not in node or (within and not tagged)):
            tagged = True  # a key that is called as the class comes behind the class
            continue
        form = within or "[" in str(place)  # such as function-before[...]: a key of ours has no brackets
        if isinstance(node, dict) and path and place not in node and form:  # a name left out, or a form's
            continue
        if isinstance(node, list | tuple) and not isinstance(place, int):  # its places have no names
            continue
        if not isinstance(node, dict | list | tuple):  # a value has no keys: it is one of its types
            if place == node and step == len(steps) - 1:  # or a name alone, whose class has keys that are missing
                path += map(str, steps[step - 1 if isinstance(parent, list | tuple) else step :])
            continue
        path.append(str(place))
        parent, tagged = node, False
        if isinstance(node, dict):
            node = node.get(place)
        elif isinstance(node, list | tuple) and place < len(node):
            node = node[place]
    return tuple(path)


def _valid_keys(loc: Iterable[Any]) -> list[str]:
    """Return the valid keys at a location of the schema."""
    classes: list[Any] = [Experiment]
    for place in loc:
        found: list[Any] = []
        for cls in classes:
            if place in fields_of(cls):
                found += classes_of(fields_of(cls)[place])
            elif isinstance(place, int) or place in names_of(cls):
                found.append(cls)
        classes = found or classes
    return [key for cls in classes for key in fields_of(cls)]


def _suggested(keys: tuple[str, ...], loc: tuple[Any, ...]) -> str:
    """Return the end of a message about an unknown key: other sections with a key of this name, or the nearest key."""
    if len(keys) == 1 and (elsewhere := [path for path in _paths() if path.endswith(f".{keys[0]}")]):
        return f"; did you mean {' or '.join(elsewhere)}?"
    head, colon, value = keys[-1].partition(":")
    if colon and head in _valid_keys(loc[:-1]):
        return f"; YAML needs a blank after the colon: write {head}: {value}"
    if "." in keys[-1] and ".".join(keys) in _paths():
        return f"; keys of a section stand within it: write {_nested(keys[-1])}"
    return _nearest(keys[-1], _valid_keys(loc[:-1]))


def _nested(dotted: str) -> str:
    """Return a dotted key as it stands in a file."""
    first, _, rest = dotted.partition(".")
    return f"{first}: {{{_nested(rest)}}}" if rest else f"{first}: ..."


def _paths() -> list[str]:
    """Return the dotted keys of an experiment, without those in lists."""
    found: dict[str, None] = {}

    def walk(cls: Any, prefix: str) -> None:
        for name, field in fields_of(cls).items():
            found[f"{prefix}{name}"] = None
            if typing.get_origin(field.annotation) is not tuple:
                for model in classes_of(field):
                    walk(model, f"{prefix}{name}.")

    walk(Experiment, "")
    return list(found)


def _nearest(word: str, valid: list[str]) -> str:
    close = difflib.get_close_matches(word, valid, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; valid: {', '.join(sorted(set(valid)))}"
