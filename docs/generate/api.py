"""Pages of the Python interface: names with summaries and signatures, and docstrings in the site (mkdocstrings)."""

import ast
import inspect
import textwrap
from importlib import import_module
from typing import Any

from docs.generate.markdown import joined, prose, table

# Of each page its title, a sentence, and the objects on it. A module stands for all names that it lists in __all__.
PAGES = {
    "fedtext": ("The library", "All of `import fedtext`, without Ray and MLflow.", ["fedtext"]),
    "sweeps": ("Sweeps", "Trials side by side on Ray, tracked in MLflow.", ["sweeps"]),
    "methods": (
        "Writing methods",
        "The class to subclass, what its hooks receive, and arithmetic on named tensors.",
        [
            "fedtext.methods.base.Method",
            "fedtext.methods.base.Model",
            "fedtext.models.batch.Batch",
            "fedtext.methods.state.Local",
            "fedtext.methods.state.Tensors",
        ],
    ),
    "mechanisms": (
        "Writing mechanisms",
        "The class to subclass, and what a guarantee is made of.",
        [
            "fedtext.mechanisms.base.Mechanism",
            "fedtext.mechanisms.base.Follower",
            "fedtext.mechanisms.places.encode_places",
            "fedtext.mechanisms.places.decode_places",
            "fedtext.accounting.entry.Entry",
            "fedtext.accounting.entry.Bound",
            "fedtext.accounting.entry.Sent",
        ],
    ),
    "aggregations": (
        "Writing aggregations",
        "The classes to subclass, the updates that they combine, and the set of updates that they read. "
        'The embedding table is the tensor `fedtext.layout.TABLE` (`"embedding.weight"`) of an update.',
        [
            "fedtext.aggregations.base.Aggregation",
            "fedtext.aggregations.base.SumAggregation",
            "fedtext.aggregations.base.IndividualAggregation",
            "fedtext.aggregations.base.samples",
            "fedtext.aggregations.update_set.UpdateSet",
            "fedtext.aggregations.update_set.moved",
            "fedtext.messages.Update",
        ],
    ),
    "corpora": (
        "Writing corpora",
        "The classes to subclass, and what a corpus consists of.",
        [
            "fedtext.corpora.base.CorpusConfig",
            "fedtext.corpora.labelled.LabelledCorpus",
            "fedtext.corpora.base.find",
            "fedtext.corpora.files.read_lines",
            "fedtext.corpora.types",
        ],
    ),
    "models": (
        "Writing models",
        "The classes to subclass, and the parts of a network that methods ask for.",
        [
            "fedtext.models.base.ModelConfig",
            "fedtext.models.base.ClassifierConfig",
            "fedtext.models.base.Embedding",
            "fedtext.models.parts.Parts",
        ],
    ),
    "audits": (
        "Writing audits",
        "The classes to subclass, and what an audit sees of a local update. "
        "`fedtext.messages.Update` is described in [aggregations](aggregations.md).",
        [
            "fedtext.audits.base.Words",
            "fedtext.audits.base.Setting",
            "fedtext.audits.base.Population",
            "fedtext.audits.base.Known",
            "fedtext.audits.base.LocalUpdate",
            "fedtext.audits.base.Observation",
            "fedtext.audits.base.Audit",
        ],
    ),
    "adversaries": (
        "Writing attacks",
        "The classes to subclass: what an adversary trains on, what it sends, and what several choose together. "
        "`fedtext.messages.Update` is described in [aggregations](aggregations.md).",
        ["fedtext.adversaries.base"],
    ),
    "testing": (
        "Conformance checks",
        "Checks that a part of your own keeps the contracts of fedtext.",
        ["fedtext.testing"],
    ),
}
NOTE = (
    "This page is written by `python -m docs`. The site (`make docs`) shows each docstring below the signatures; "
    "`python -m pydoc NAME` shows it, too."
)


def pages() -> dict[str, str]:
    """Return the page of each part of the interface by its path in ``docs/``."""
    return {f"reference/api/{name}.md": _page(*about) for name, about in PAGES.items()}


def _page(title: str, about: str, places: list[str]) -> str:
    names = [name for place in places for name in _objects(place)]
    rows = [(f"`{name}`", prose(_summary(_found(name).__doc__))) for name in names]
    shown = [text for name in names if (text := _signatures(_found(name)))]
    signatures = ["## Signatures", "```python\n" + "\n\n\n".join(shown) + "\n```"]
    made = [f"# {title}", about, NOTE, table(("name", "what it is"), rows), *signatures]
    return joined([*made, *map(_directive, names)])


def _signatures(found: Any) -> str:
    """Return a function, or a class with its attributes and public methods, without bodies but for summaries."""
    if not inspect.isroutine(found) and not inspect.isclass(found):
        return ""
    source = textwrap.dedent(inspect.getsource(found))
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return "\n".join(_short(node, source.splitlines()))


def _short(node: ast.ClassDef | ast.FunctionDef, lines: list[str]) -> list[str]:
    """Return the lines of a function or class without its body: as they are written, with a function's summary."""
    first, indent = node.body[0], " " * (node.col_offset + 4)
    whole = bool(lines[first.lineno - 1][: first.col_offset].strip())  # ``def name(self) -> int: ...``
    begin = min(each.lineno for each in (node, *node.decorator_list))
    found = lines[begin - 1 : first.lineno - (not whole)]
    if isinstance(node, ast.FunctionDef):
        said = _summary(ast.get_docstring(node))
        return found if whole else [*found, f'{indent}"""{said}"""'] if said else _empty(found)
    header = len(found)
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and (each.name == "__init__" or not each.name.startswith("_")):
            found += [""] * (len(found) > header) + _short(each, lines)
        elif isinstance(each, ast.Assign | ast.AnnAssign) and not ast.unparse(each).startswith("_"):
            found += lines[each.lineno - 1 : each.end_lineno]
    return found if len(found) > header else _empty(found)


def _empty(head: list[str]) -> list[str]:
    """Return a function or class that has nothing to show."""
    return [*head[:-1], f"{head[-1]} ..."]


def _summary(text: str | None) -> str:
    """Return the first paragraph of a docstring in one line."""
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


def _directive(name: str) -> str:
    """Return what mkdocstrings replaces by a docstring: where the object is defined, under its public name."""
    found = _found(name)
    return f"::: {found.__module__}.{found.__qualname__}\n    options:\n      heading: {name}"


def _objects(place: str) -> list[str]:
    """Return a class or function itself; of a module its public names: those of __all__, or the classes it defines."""
    try:
        module = import_module(place)
    except ModuleNotFoundError:
        return [place]
    if hasattr(module, "__all__"):
        return [f"{place}.{name}" for name in module.__all__]
    found = (name for name, it in vars(module).items() if inspect.isclass(it) and it.__module__ == place)
    return [f"{place}.{name}" for name in found if not name.startswith("_")]


def _found(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)
