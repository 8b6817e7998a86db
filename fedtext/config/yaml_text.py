"""YAML files written by users: parsing that refuses duplicate keys, and the line of every key."""

import math
import re
from typing import Any

import yaml

DEEPEST = 50  # mappings and lists in one another
BITS = 10_000  # of a whole number
MOST = 100_000  # values, those of an alias counted wherever it stands


class YAMLTextError(ValueError):
    """A text is not valid YAML. ``line`` counts from 1; it is None if it is not known."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.line = line


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys instead of using the last one, and values that have no end."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
        """Refuse what is nested too deeply while it is parsed: the parser calls itself."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise YAMLTextError(f"values are nested more than {DEEPEST} deep", self.peek_event().start_mark.line + 1)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_yaml_int(self, node: Any) -> int:
        """Refuse a number that cannot be printed: Python converts hexadecimal ones of any length."""
        if (value := super().construct_yaml_int(node)).bit_length() > BITS:
            raise YAMLTextError(f"a whole number has more than {BITS} bits", node.start_mark.line + 1)
        return value

    def get_single_node(self) -> Any:
        """Refuse aliases that contain themselves, or that make more values than anybody writes."""
        node = super().get_single_node()
        if node is not None:
            _count(node, {})
        return node

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


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _count(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Return the number of values in a node, with those of its aliases.

    Args:
        node: The node.
        known: The numbers of nodes, by id; None while a node is counted.

    Raises:
        YAMLTextError: A node contains itself, or has more than ``MOST`` values.
    """
    line = node.start_mark.line + 1
    if (count := known.get(id(node), 0)) is None:
        raise YAMLTextError("a value contains itself by an alias (*): write it out", line)
    if not count:
        known[id(node)] = None
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        inner = [part for pair in pairs for part in pair] or (node.value if isinstance(node, yaml.SequenceNode) else ())
        known[id(node)] = count = 1 + sum(_count(part, known) for part in inner)
    if count > MOST:
        raise YAMLTextError(f"there are more than {MOST:,} values, counted with aliases (*)", line)
    return count


def parse(text: str) -> Any:
    """Parse a YAML text.

    Raises:
        YAMLTextError: The text is not YAML, has a duplicate key, or an invalid value, such as an impossible date.
    """
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), str(getattr(error, "problem", error))
        if isinstance(error, yaml.reader.ReaderError):
            problem = f"character {error.position + 1} is #x{error.character:04x}, which it may not have: remove it"
        if "'\\t'" in problem:
            problem = "there is a tab where a key or a value should begin: indent with spaces"
        raise YAMLTextError(f"this is not YAML ({problem})", mark.line + 1 if mark else None) from error
    except YAMLTextError:
        raise
    except (ValueError, OverflowError, LookupError, AttributeError) as error:  # of the constructors of PyYAML
        raise YAMLTextError(f"a value cannot be read ({error}): put it in quotes, without a tag (!!)", None) from error


def number(value: Any) -> Any:
    """Return the number that a text such as ``1e-5`` is, which YAML 1.1 takes for a text; other values as they are."""
    if not isinstance(value, str) or not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", value, re.ASCII):
        return value
    return found if math.isfinite(found := float(value)) else value


def with_numbers(value: Any) -> Any:
    """Return a value in which each text that is a number by ``number`` is that number, also in lists and mappings."""
    if isinstance(value, dict):
        return {key: with_numbers(part) for key, part in value.items()}
    return [with_numbers(part) for part in value] if isinstance(value, list) else number(value)


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
