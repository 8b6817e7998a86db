"""The mutation operators: small edits of a module's source, made on its syntax tree."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
_NAMES |= {"argmin": "argmax", "argmax": "argmin", "zeros_like": "ones_like", "ones_like": "zeros_like"}
_NAMES |= {"zeros": "ones", "ones": "zeros"}
# Calls whose first two arguments are alike: one of the two, or their sum, whichever comes first.
_COMMUTING = {"max", "min", "np.add", "np.logical_xor", "np.maximum", "np.minimum", "np.multiply", "np.union1d"}
_COMMUTING |= {"torch.logaddexp"}
# Calls whose arguments are texts or bounds of configuration keys, and no mathematics.
_OPAQUE = {"Field", "getLogger", "exception", "warning", "UserError", "ValueError", "ClientError"}


@dataclass(frozen=True)
class Mutant:
    """One edit of a module.

    Attributes:
        module: path of the module, relative to the repository.
        function: qualified name of the function that holds the edit; empty for code that runs on import.
        before: the source line on which the edit begins, stripped.
        after: the same line of the mutated source.
        source: the mutated source.
    """

    module: str
    function: str
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.module} {self.function}: {self.before}  ->  {self.after}"


def mutants(module: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines. Edits that leave the syntax tree as it was are dropped."""
    tree, raw = ast.parse(source), source.encode()
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    original, found = ast.dump(tree), {}
    for function, node, replacement in _edits(tree, ""):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
        mutated = (raw[:begin] + replacement.encode() + raw[end:]).decode()
        try:
            if ast.dump(ast.parse(mutated)) == original:
                continue
        except SyntaxError:  # a replacement inside an f-string, or one that would need another indentation
            continue
        before, after = (text.splitlines()[node.lineno - 1].strip() for text in (source, mutated))
        if before == after:  # the line goes on below: show where they part
            before, after = _parted(source, mutated, node.lineno - 1)
        found.setdefault(mutated, Mutant(module, function, before, after, mutated))
    return list(found.values())


def _parted(source: str, mutated: str, line: int) -> tuple[str, str]:
    for one, other in zip(source.splitlines()[line:], mutated.splitlines()[line:], strict=False):
        if one != other:
            return one.strip(), other.strip()
    return "", ""


Edit = tuple[str, ast.stmt | ast.expr, str]  # function, the node that is replaced, its new text


def _edits(node: ast.AST, function: str, closed: bool = False) -> Iterator[Edit]:
    """The edits of a tree, without those in annotations, texts, assertions and messages of errors."""
    for field, child in _children(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and not closed:
            inside = f"{function}.{child.name}" if function else child.name
        if isinstance(child, ast.expr | ast.stmt):
            for text in _replacements(child, field):
                yield inside, child, text
        # What is inside a function is a part of that.
        yield from _edits(child, inside, closed or isinstance(child, ast.FunctionDef))


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in _OPAQUE:
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: a check, like an assertion
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and hasattr(child, "lineno"):
                yield field, child
            elif isinstance(child, ast.arguments | ast.comprehension):
                yield from _children(child)


def _replacements(node: ast.expr | ast.stmt, field: str) -> Iterator[str]:
    if field == "test" and isinstance(node, ast.Name | ast.Attribute | ast.Call):
        yield f"(not {ast.unparse(node)})"
    match node:
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            yield f"({_changed(node, op=_ARITHMETIC[type(op)]())})"
        case ast.AugAssign(op=op):
            yield "pass"
            if type(op) in _ARITHMETIC:
                yield _changed(node, op=_ARITHMETIC[type(op)]())
        case ast.Compare(ops=[op]):
            yield f"({_changed(node, ops=[_COMPARISONS[type(op)]()])})"
        case ast.BoolOp(op=op):
            yield f"({_changed(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())})"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=value):
            yield from _constants(value)
        case ast.IfExp():
            yield f"({_changed(node, body=node.orelse, orelse=node.body)})"
        case ast.Name(id=name) if field == "func" and name in _NAMES:
            yield _NAMES[name]
        case ast.Attribute(attr=name) if field == "func" and name in _NAMES:
            yield _changed(node, attr=_NAMES[name])
        case ast.Call(args=[first, second, *rest]) if not isinstance(first, ast.Starred):
            named = ast.unparse(node.func)
            if named not in _COMMUTING and named.split(".")[-1] not in {
                *_OPAQUE,
                "isinstance",
                "getattr",
                "zip",
                "generator",
                "paired",
                "derive",
                "torch_scope",
            }:
                yield _changed(node, args=[second, first, *rest])
        case ast.Expr(value=ast.Call(func=func)) if ast.unparse(func).split(".")[-1] not in _OPAQUE:
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Continue() | ast.Break() | ast.Delete():
            yield "pass"
        case ast.Return(value=ast.Call(args=[first, *_])) if not isinstance(first, ast.Starred):
            yield f"return {ast.unparse(first)}"


def _constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield from {0: ("1",), 1: ("0", "2")}.get(value, (str(value + 1), str(value - 1)))
    elif isinstance(value, float):
        yield repr(2 * value if value else 1.0)


def _changed(node: ast.AST, **fields: object) -> str:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return ast.unparse(made)
