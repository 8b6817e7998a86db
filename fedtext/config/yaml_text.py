"""YAML files written by users: parsing that refuses duplicate keys, and the line of every key."""

from typing import Any

import yaml


class YAMLTextError(ValueError):
    """A text is not valid YAML. ``line`` counts from 1; it is None if it is not known."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.line = line


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys instead of using the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                line = key.start_mark.line + 1
                if before := first.get((key.tag, key.value)):
                    at = f" (first in line {before})" if before < line else ""
                    raise YAMLTextError(f"the key {key.value} is given a second time{at}: keep one of the two", line)
                first[key.tag, key.value] = line
        return super().construct_mapping(node, deep=deep)


def parse(text: str) -> Any:
    """Parse a YAML text.

    Raises:
        YAMLTextError: The text is not YAML, has a duplicate key, or an invalid value, such as an impossible date.
    """
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), str(getattr(error, "problem", error))
        if "'\\t'" in problem:
            problem = "there is a tab where a key or a value should begin: indent with spaces"
        raise YAMLTextError(f"this is not YAML ({problem})", mark.line + 1 if mark else None) from error
    except YAMLTextError:
        raise
    except ValueError as error:
        raise YAMLTextError(f"a value cannot be read ({error}); put it in quotes", None) from error


def lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of every key in a YAML text, by the key's path."""
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

    walk(yaml.compose(text), ())
    return found
