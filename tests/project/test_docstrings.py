"""Public functions explain their parameters, if they have three or more, and name the errors that they raise."""

import ast
import re
from collections.abc import Iterator

from tests import ROOT

PACKAGES = ("fedtext", "actors", "sweeps", "dashboards", "cluster", "tune_spaces", "platform")
TORCH = {"forward", "backward", "vmap", "setup_context"}  # of an autograd function, whose interface is torch's
ENTRY = re.compile(r" {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*): ")
MANY = 3


class Function:
    """A public function or method: its name with its class, its parameters, and those that its docstring names."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.ClassDef | None) -> None:
        given = node.args
        every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
        names = [each.arg for each in every if each is not None]
        bound = owner and not any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)
        self.name, self.method = node.name, owner is not None
        self.title = f"{owner.name}.{node.name}" if owner else node.name
        self.parameters = names[1:] if bound else names
        self.bases = [ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in owner.bases] if owner else []
        self.docstring = ast.get_docstring(node) or ""
        made = [one.exc for one in ast.walk(node) if isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call)]
        self.errors = sorted({ast.unparse(error.func) for error in made})

    @property
    def documented(self) -> list[str]:
        """The parameters of the section ``Args``."""
        _, _, section = f"\n{self.docstring}\n".partition("\nArgs:\n")
        lines = iter(section.split("\n"))
        found = []
        for line in lines:
            if line and not line.startswith(" "):
                break
            if entry := ENTRY.match(line):
                found += [name.strip("* ") for name in entry[1].split(",")]
        return found


def public(tree: ast.Module) -> Iterator[Function]:
    """Yield the functions of a module, and the methods of its classes, whose names have no leading underscore."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            inside = [(each, node) for each in node.body]
        else:
            inside = [(node, None)]
        for each, owner in inside:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
                yield Function(each, owner)


def lacking(modules: dict[str, ast.Module]) -> list[str]:
    """Return the functions whose ``Args`` are not their parameters, in order.

    A function may leave them to another one of the same name and parameters, which it overrides or stands in for, or,
    without a docstring, to a class of another library.
    """
    found = [(name, function) for name, tree in modules.items() for function in public(tree)]
    many = [(name, function) for name, function in found if len(function.parameters) >= MANY]
    own = {node.name for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    explained = {(f.name, *f.parameters) for _, f in many if f.documented == f.parameters}

    def elsewhere(function: Function) -> bool:
        if not function.documented and (function.name, *function.parameters) in explained:
            return True
        if function.name in TORCH and {"Function", "MappedFunction", "Steps"} & set(function.bases):
            return True
        return not function.docstring and any(base not in own for base in function.bases)

    return [
        f"{name}: {function.title}({', '.join(function.parameters)}) explains {function.documented}"
        for name, function in many
        if function.documented != function.parameters and not elsewhere(function)
    ]


def silent(modules: dict[str, ast.Module]) -> list[str]:
    """Return the functions whose docstrings do not name an error that they raise themselves."""
    return [
        f"{name}: {function.title} raises {error}"
        for name, tree in modules.items()
        for function in public(tree)
        if function.docstring
        for error in function.errors
        if error not in function.docstring
    ]


def sources() -> dict[str, ast.Module]:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 200
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text()) for file in files}


def test_functions_of_many_parameters_explain_each() -> None:
    assert lacking(sources()) == []


def test_functions_name_the_errors_that_they_raise() -> None:
    assert silent(sources()) == []
    source = '''
def told(a):
    """Do it. Raises UserError if it cannot be done."""
    raise UserError(a)

def untold(a):
    """Do it.

    Raises:
        UserError: It cannot be done.
    """
    if a:
        raise UserError(a)
    raise module.OtherError(a)

def again(a):
    """Do it."""
    try:
        pass
    except OSError as error:
        raise error from None
'''
    assert silent({"module": ast.parse(source)}) == ["module: untold raises module.OtherError"]


def test_a_wrong_or_missing_name_is_found() -> None:
    source = '''
def right(a, *b, c):
    """Do it.

    Args:
        a: One.
        b: Several, whose description
            goes on: like this.
        c: Another.

    Raises:
        ValueError: It cannot be done.
    """

def wrong(a, b, c):
    """Do it.

    Args:
        a, c: Two.
        x: A third.
    """

def bare(a, b, c):
    """Do it."""

def few(a, b): ...

def _private(a, b, c): ...

class Base:
    def do(self, a, b, c):
        """Do it.

        Args:
            a, b, c: Three.
        """

class Made(Base):
    def do(self, a, b, c):
        """Do it at once."""

    def other(self, a, b, c): ...

    @staticmethod
    def fixed(a, b, c):
        """Do it.

        Args:
            a: One.
            b: Two.
        """

class Foreign(Callback):
    def on_end(self, a, b, c): ...

    def said(self, a, b, c):
        """Say it."""
'''
    assert lacking({"module": ast.parse(source)}) == [
        "module: wrong(a, b, c) explains ['a', 'c', 'x']",
        "module: bare(a, b, c) explains []",
        "module: Made.other(a, b, c) explains []",
        "module: Made.fixed(a, b, c) explains ['a', 'b']",
        "module: Foreign.said(a, b, c) explains []",
    ]
