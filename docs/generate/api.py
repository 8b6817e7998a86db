"""Pages of the Python interface: names with their summaries here, and their docstrings in the site (mkdocstrings)."""

import inspect
from importlib import import_module
from typing import Any

from docs.generate.markdown import first_line, joined, table

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
            "fedtext.accounting.entry.Entry",
            "fedtext.accounting.entry.Bound",
            "fedtext.accounting.entry.Sent",
        ],
    ),
    "aggregations": (
        "Writing aggregations",
        "The classes to subclass, and the set of updates that they read.",
        [
            "fedtext.aggregations.base.Aggregation",
            "fedtext.aggregations.base.SumAggregation",
            "fedtext.aggregations.base.IndividualAggregation",
            "fedtext.aggregations.update_set.UpdateSet",
        ],
    ),
    "corpora": (
        "Writing corpora",
        "The classes to subclass, and what a corpus consists of.",
        ["fedtext.corpora.base.CorpusConfig", "fedtext.corpora.labelled.LabelledCorpus", "fedtext.corpora.types"],
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
        "The classes to subclass, and what an audit sees of a local update.",
        ["fedtext.audits.base"],
    ),
    "adversaries": (
        "Writing attacks",
        "The classes to subclass: what an adversary trains on, what it sends, and what several choose together.",
        ["fedtext.adversaries.base"],
    ),
    "testing": (
        "Conformance checks",
        "Checks that a part of your own keeps the contracts of fedtext.",
        ["fedtext.testing"],
    ),
}
NOTE = "This list is written by `python -m docs`. Below it the site (`make docs`) shows each docstring."


def pages() -> dict[str, str]:
    """Return the page of each part of the interface by its path in ``docs/``."""
    return {f"reference/api/{name}.md": _page(*about) for name, about in PAGES.items()}


def _page(title: str, about: str, places: list[str]) -> str:
    names = [name for place in places for name in _objects(place)]
    rows = [(f"`{name}`", first_line(_found(name).__doc__)) for name in names]
    return joined([f"# {title}", about, NOTE, table(("name", "what it is"), rows), *map(_directive, names)])


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
