"""The page of error messages, collected from the code when the site is built."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from docs.generate.markdown import ROOT, joined, prose

PACKAGES = ("fedtext", "actors", "sweeps", "dashboards", "tune_spaces", "cluster", "platform")
RAISED = {"UserError", "ValueError", "ArgumentTypeError", "ClientError"}
SHORTEST = 20  # letters of a message that says something by itself


def page() -> str:
    """Return the page of all messages, by the module that has them."""
    parts = [
        "# Error messages",
        "Each sentence with which a command ends with status 2, or a function raises `UserError`, by the module that "
        "has it. `…` stands for what the message fills in. [Exit statuses and classes of errors](errors.md).",
        "This page is collected from the code whenever the site is built.",
    ]
    for package in PACKAGES:
        modules = [(file, found) for file in sorted((ROOT / package).rglob("*.py")) if (found := messages(file))]
        parts += [f"## {package}"] if modules else []
        for file, found in modules:
            about = prose(inspect.cleandoc(ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0])
            parts += [f"**`{file.relative_to(ROOT)}`** {about}", "\n".join(f"- {prose(text)}" for text in found)]
    return joined(parts)


def messages(file: Path) -> list[str]:
    """Return the messages of a module's errors, each once, in order. What they fill in is ``…``."""
    tree = ast.parse(file.read_text())
    found = [text for node in _sentences(tree, "compatibility" in file.parts) if (text := _text(node))]
    return [text for text in dict.fromkeys(found) if len(text.replace("…", "")) >= SHORTEST]


def _sentences(tree: ast.Module, rules: bool) -> Iterator[ast.expr]:
    """Yield the expressions of messages: of errors that are raised, and of rules, which yield theirs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in RAISED and node.args:
            yield node.args[-1] if _name(node.func) == "ClientError" else node.args[0]
        elif rules and isinstance(node, ast.Yield) and node.value is not None:
            yield node.value


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr) -> str:
    """Return a string expression with what it fills in as ``…``; empty if it is no string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(node.left), _text(node.right)]
        return "".join(part or "…" for part in parts) if any(parts) else ""
    return ""
