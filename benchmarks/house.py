"""``python -m benchmarks.house [FOLDER]``: statistics of the library's packages, imports, files and functions.

A room is a package or a loose module directly under ``fedtext/``, an arrow an import from one room to another. An
arrow is upward if it goes against the order of the rooms in ``pyproject.toml``; without such an order, if it belongs to
a cycle of rooms. Imports under ``TYPE_CHECKING`` count too.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

LONG_FILE, LONG_FUNCTION = 300, 50
Graph = Mapping[str, set[str]]


def modules(folder: Path) -> dict[str, Path]:
    """Return the library's modules by dotted name."""
    found = {}
    for path in sorted((folder / "fedtext").rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(folder: Path) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    found = modules(folder)

    def named(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in found else str(node.module) for name in inner)

    trees = {name: ast.parse(path.read_text()) for name, path in found.items()}
    return {
        name: {other for node in ast.walk(tree) for other in named(node) if other in found} - {name}
        for name, tree in trees.items()
    }


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def rooms(graph: Graph) -> dict[str, set[str]]:
    """Return the rooms that each room imports."""
    found: dict[str, set[str]] = {room(name): set() for name in graph}
    for name, others in graph.items():
        found[room(name)] |= {room(other) for other in others} - {room(name)}
    return found


def circles(graph: Graph) -> list[set[str]]:
    """Return the strongly connected sets of at least two nodes, the largest first."""
    reached = {node: _reached(graph, node) for node in graph}
    found = {frozenset({other for other in reached[node] if node in reached[other]} | {node}) for node in graph}
    return sorted((set(each) for each in found if len(each) > 1), key=len, reverse=True)


def _reached(graph: Graph, start: str) -> set[str]:
    seen, left = set(), list(graph[start])
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += graph[node]
    return seen


def order(folder: Path) -> list[set[str]]:
    """Return the rooms from top to bottom, by the contract of import-linter; empty without one."""
    content = tomllib.loads((folder / "pyproject.toml").read_text())
    for contract in content.get("tool", {}).get("importlinter", {}).get("contracts", []):
        if contract.get("containers") == ["fedtext"]:
            return [set(layer.split(" | ")) for layer in contract["layers"]]
    return []


def upward(graph: Graph, layers: list[set[str]]) -> int:
    """Count the upward arrows."""
    place = {name: number for number, layer in enumerate(layers) for name in layer}
    if place:
        return sum(place.get(a, -1) >= place.get(b, -1) for a, others in graph.items() for b in others)
    return sum(a in circle and b in circle for circle in circles(graph) for a in graph for b in graph[a])


def sizes(folder: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return (lines, name) of the files and of the functions, the longest first."""
    lengths, functions = [], []
    for path in modules(folder).values():
        text, name = path.read_text(), str(path.relative_to(folder))
        lengths.append((text.count("\n"), name))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                functions.append((node.end_lineno - node.lineno + 1, f"{name}:{node.name}"))  # type: ignore[operator]
    return sorted(lengths, reverse=True), sorted(functions, reverse=True)


def main(folder: Path) -> None:
    graph = imports(folder)
    between = rooms(graph)
    files, functions = sizes(folder)
    loose = [name for name in between if (folder / "fedtext" / f"{name}.py").is_file()]
    largest = max(map(len, circles(graph)), default=0), max(map(len, circles(between)), default=0)
    for name, value in (
        ("modules", len(graph)),
        ("rooms", len(between)),
        ("of these loose modules", len(loose)),
        ("arrows between rooms", sum(map(len, between.values()))),
        ("of these upward", upward(between, order(folder))),
        ("largest circle of modules", largest[0]),
        ("largest circle of rooms", largest[1]),
        (f"files above {LONG_FILE} lines", sum(length > LONG_FILE for length, _ in files)),
        (f"functions above {LONG_FUNCTION} lines", sum(length > LONG_FUNCTION for length, _ in functions)),
    ):
        print(f"{value:6}  {name}")
    for what, longest in (("file", files), ("function", functions)):
        print(f"longest {what}: {longest[0][1]}, {longest[0][0]} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
