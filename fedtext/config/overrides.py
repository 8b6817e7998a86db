"""``key=value`` words of the command line, and dotted keys set in an experiment's content."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from fedtext.config.yaml_text import YAMLTextError, parse
from fedtext.errors import UserError, option, place_of_overrides

Content = dict[str, Any]


def parse_override(word: str) -> tuple[str, Any]:
    """Parse ``training.rounds=3`` into ("training.rounds", 3). The value is YAML. Raises UserError otherwise."""
    key, equals, value = word.partition("=") if isinstance(word, str) else ("", "", "")
    if not equals or not key:
        raise UserError(f"{word!r} is not key=value: write for example training.rounds=3")
    try:
        return key, parse(value)
    except YAMLTextError as error:
        raise UserError(f"{place_of_overrides()}: the value of {key}, {value!r}: {error}") from error


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Parse ``key=value`` words.

    Args:
        words: As typed. Of the same key the last one counts.

    Returns:
        Values by dotted key.

    Raises:
        UserError: A word is not ``key=value``, or a later word replaces the section that holds its key.
    """
    pairs: dict[str, Any] = {}
    for word in words:
        key, value = parse_override(word)
        lost = [earlier for earlier in pairs if earlier.startswith(f"{key}.")]
        if lost:
            raise UserError(f"{lost[0]} has no effect, since {key} after it replaces the section: put {key} first")
        pairs[key] = value
    return pairs


def with_seed(words: Iterable[str], seed: int | None) -> list[str]:
    """Return ``key=value`` words with the seed that the option --seed has given, if it has. Raises UserError if one of
    them is the seed too."""
    words = list(words)
    if seed is None:
        return words
    for word in words:
        if isinstance(word, str) and word.startswith("seed="):
            raise UserError(f"{option('seed', str(seed))} and {word} both set the seed: leave out one of them")
    return [*words, f"seed={seed}"]


def override(content: Content, changes: Mapping[str, Any]) -> Content:
    """Return a copy of ``content`` with dotted keys set. A name in place of a mapping (``method: kteps``) becomes one;
    entries of lists have numbers (``uplink.0.gaussian.sigma``). Raises UserError if a key cannot be set."""
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
        _put(node, last, copy.deepcopy(value))  # a later key may change it
    return result


def _entry(node: list[Any], key: str, where: str) -> Any:
    if not key.isdecimal() or int(key) >= len(node):
        there = f"has entries 0 to {len(node) - 1}" if node else "is empty"
        raise UserError(f"{where} does not exist: that list {there}")
    return node[int(key)]


def _put(node: Any, key: str, value: Any) -> None:
    node[int(key) if isinstance(node, list) else key] = value
