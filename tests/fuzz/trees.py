"""Mutations of mappings and lists: of experiment files, and of the JSON in the folders of runs."""

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.fuzz.values import strange

Path = tuple[Any, ...]


def places(tree: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value in a tree but the whole."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def parent(tree: Any, path: Path) -> Any:
    """The mapping or list that has the value at ``path``."""
    for key in path[:-1]:
        tree = tree[key]
    return tree


def mutated(tree: Any, draw: random.Random, marks: bool = False) -> Any:
    """A copy of a tree with one to three mutations."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        found = list(places(tree))
        if not found or draw.random() < 0.01:
            return strange(draw, marks)
        path = draw.choice(found)
        draw.choice(MUTATIONS)(tree, path, found, draw, marks)
    return tree


def _replace(tree: Any, path: Path, found: list[Path], draw: random.Random, marks: bool) -> None:
    parent(tree, path)[path[-1]] = strange(draw, marks)


def _delete(tree: Any, path: Path, found: list[Path], draw: random.Random, marks: bool) -> None:
    del parent(tree, path)[path[-1]]


def _rename(tree: Any, path: Path, found: list[Path], draw: random.Random, marks: bool) -> None:
    node = parent(tree, path)
    if isinstance(node, list):
        node.insert(path[-1], copy.deepcopy(node[path[-1]]))
        return
    names = [str(path[-1])[1:], f"{path[-1]}s", str(path[-1]).upper(), strange(draw), draw.choice(found)[-1]]
    name = draw.choice(names)
    node[name if isinstance(name, str | int | float | None) else str(name)] = node.pop(path[-1])


def _swap(tree: Any, path: Path, found: list[Path], draw: random.Random, marks: bool) -> None:
    other = draw.choice(found)
    parent(tree, path)[path[-1]] = copy.deepcopy(parent(tree, other)[other[-1]])


def _wrap(tree: Any, path: Path, found: list[Path], draw: random.Random, marks: bool) -> None:
    node = parent(tree, path)
    value = node[path[-1]]
    node[path[-1]] = draw.choice(([value], {"name": value}, {"value": value}, str(value), [value] * 50))


def _scale(tree: Any, path: Path, found: list[Path], draw: random.Random, marks: bool) -> None:
    """Change a number: the one at ``path``, or else any."""
    numbers = [place for place in found if type(parent(tree, place)[place[-1]]) in (int, float)]
    if numbers:
        place = path if path in numbers else draw.choice(numbers)
        parent(tree, place)[place[-1]] *= draw.choice((-1, 0, 2, 1000, 10**6, 10**9, 10**15, 1e-9, 1e300))


MUTATIONS = (_replace, _replace, _replace, _delete, _rename, _swap, _wrap, _scale, _scale)
