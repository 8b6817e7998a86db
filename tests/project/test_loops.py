"""A loop that asserts has something to loop over: what may be empty goes through ``nonempty``."""

import ast
from collections.abc import Iterator

import pytest

from tests import ROOT
from tests.loops import nonempty

FILES = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks" / "tests").rglob("*.py")])
SAME_LENGTH = {"enumerate", "sorted", "list", "tuple", "set", "frozenset", "reversed", "map"}  # empty if the last is
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """One file: what its names are bound to, and which of its functions assert."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.functions = {node.name: node for node in self.tree.body if isinstance(node, FUNCTIONS)}
        self.outside = _bindings([node for node in self.tree.body if not isinstance(node, FUNCTIONS)])
        self.asserting = {name for name, node in self.functions.items() if _has(node, ast.Assert)}

    def unsure(self) -> Iterator[ast.expr]:
        """Yield what loops with assertions, and ``all`` and ``not any`` in assertions, go through that may be empty."""
        for top in self.tree.body:
            inside = _bindings([top]) if not isinstance(top, ast.Assign | ast.AnnAssign) else {}
            names = {**self.outside, **inside}
            for node in ast.walk(top):
                if isinstance(node, ast.For) and any(map(self.asserts, node.body)) and not sure(node.iter, names):
                    yield node.iter
                elif isinstance(node, ast.Assert):
                    yield from (found for found in _quantified(node.test) if not sure(found, names))

    def asserts(self, statement: ast.stmt) -> bool:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assert):
                return True
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in self.asserting or called == "raises" or called.startswith("assert_"):
                    return True
        return False


def sure(node: ast.expr | None, names: dict[str, ast.expr | None]) -> bool:
    """Tell whether an expression has at least one item, as far as its own file says so."""
    match node:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(sure(item.value, names) if isinstance(item, ast.Starred) else True for item in items)
        case ast.Dict(keys=keys, values=values):
            return any(key is not None or sure(value, names) for key, value in zip(keys, values, strict=True))
        case ast.Constant(value=str() as text):
            return text != ""
        case ast.Name(id=name):
            return sure(names.get(name), {**names, name: None})
        case ast.IfExp(body=one, orelse=other):
            return sure(one, names) and sure(other, names)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return sure(left, names) or sure(right, names)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return all(sure(part.iter, names) and not part.ifs for part in node.generators)
        case ast.Call(func=ast.Attribute(value=whole, attr="items" | "keys" | "values"), args=[]):
            return sure(whole, names)
        case ast.Call(func=ast.Name(id="nonempty")):
            return True
        case ast.Call(func=ast.Name(id="range"), args=args):
            numbers = [number(arg, names) for arg in args]
            return None not in numbers and len(range(*numbers)) > 0  # type: ignore[arg-type]
        case ast.Call(func=ast.Name(id="zip"), args=args, keywords=[ast.keyword(value=ast.Constant(value=True))]):
            return any(sure(arg, names) for arg in args)
        case ast.Call(func=ast.Name(id=name), args=[*_, first]) if name in SAME_LENGTH - {"enumerate"}:
            return sure(first, names)
        case ast.Call(func=ast.Name(id="enumerate"), args=[first, *_]):
            return sure(first, names)
    return False


def number(node: ast.expr | None, names: dict[str, ast.expr | None]) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return number(names.get(name), {**names, name: None})
        case ast.Call(func=ast.Name(id="len"), args=[items]) if sure(items, names):
            return 1
    return None


def _bindings(nodes: list[ast.stmt]) -> dict[str, ast.expr | None]:
    """Return the value of each name that is bound once; None for one that is bound otherwise."""
    values: dict[str, ast.expr | None] = {}
    added = {node.target for part in nodes for node in ast.walk(part) if isinstance(node, ast.AugAssign)}
    simple = {}
    for part in nodes:
        for node in ast.walk(part):
            match node:
                case ast.Assign(targets=[ast.Name() as target], value=value):
                    simple[target] = value
                case ast.AnnAssign(target=ast.Name() as target, value=value):
                    simple[target] = value
    for part in nodes:
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in added:
                values[node.id] = None if node.id in values else simple.get(node)
            elif isinstance(node, ast.arg):
                values[node.arg] = None
    return values


def _quantified(test: ast.expr) -> Iterator[ast.expr]:
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Name(id="all"), args=[argument]) if isinstance(argument, COMPREHENSIONS):
                yield argument
            case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="any"), args=[argument])):
                if isinstance(argument, COMPREHENSIONS):
                    yield argument


def _has(node: ast.AST, kind: type[ast.AST]) -> bool:
    return any(isinstance(part, kind) for part in ast.walk(node))


def test_loops_that_assert_are_known_to_run() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{items.lineno}: {ast.unparse(items)}"
        for file in nonempty(FILES)
        for items in Source(file.read_text()).unsure()
    ]
    assert found == [], "put what may be empty into tests.loops.nonempty"


@pytest.mark.parametrize(
    ("items", "empty"),
    [
        ("(1, 2)", False),
        ("()", True),
        ("[*more]", True),
        ("[*more, 1]", False),
        ("{}.items()", True),
        ("{'a': 1}.items()", False),
        ("MODULE", False),
        ("NOTHING", True),
        ("TWICE", True),
        ("GROWN", False),
        ("local", False),
        ("more", True),
        ("f()", True),
        ("nonempty(more)", False),
        ("enumerate(more)", True),
        ("enumerate(MODULE, 1)", False),
        ("zip(more, MODULE, strict=True)", False),
        ("zip(more, MODULE, strict=False)", True),
        ("zip(more, local_too, strict=True)", True),
        ("range(3)", False),
        ("range(0)", True),
        ("range(3, 3)", True),
        ("range(more)", True),
        ("range(COUNT)", False),
        ("range(len(more))", True),
        ("range(len(MODULE))", False),
        ("[x for x in MODULE]", False),
        ("[x for x in MODULE if x]", True),
        ("MODULE if more else more", True),
        ("MODULE + more", False),
        ("sorted(MODULE)", False),
        ("MODULE[3:]", True),
    ],
)
def test_what_may_be_empty_is_found(items: str, empty: bool) -> None:
    begin = "MODULE = (1,)\nNOTHING = []\nTWICE = [1]\nTWICE = []\nGROWN = [1]\nGROWN += []\nCOUNT = 2\n"
    body = f"def test(more):\n    local = [1]\n    for local_too in {items}:\n        assert local_too\n"
    assert [ast.unparse(found) for found in Source(begin + body).unsure()] == ([_printed(items)] if empty else [])


@pytest.mark.parametrize(
    ("statement", "asserts"),
    [
        ("for x in more: assert x", True),
        ("for x in more: print(x)", False),
        ("for x in more: equal(x)", True),
        ("for x in more: np.testing.assert_allclose(x, 1)", True),
        ("for x in more: raises(x)", True),
        ("assert all(x for x in more)", True),
        ("assert all(nonempty(x for x in more))", False),
        ("assert all(x for x in nonempty(more))", False),
        ("assert all(x for x in nonempty(more) if x)", True),
        ("assert not any(x for x in more)", True),
        ("assert any(x for x in more)", False),
    ],
)
def test_what_asserts_is_known(statement: str, asserts: bool) -> None:
    source = Source(f"def equal(x):\n    assert x\n\n\ndef test(more):\n    {statement}\n")
    assert (len(list(source.unsure())) == 1) == asserts


def test_what_is_empty_fails() -> None:
    assert list(nonempty([0, None])) == [0, None]
    with pytest.raises(AssertionError, match="no items"):
        list(nonempty([]))


def _printed(items: str) -> str:
    return ast.unparse(ast.parse(items, mode="eval"))
