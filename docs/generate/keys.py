"""Pages of the keys of an experiment, and of the parts that are chosen by name."""

from collections.abc import Iterator

from pydantic import BaseModel

from docs.generate.markdown import docstring, joined, prose, table
from fedtext.config.experiment import Experiment
from fedtext.config.keys import Key, summary
from fedtext.config.loading import KINDS, Kind
from fedtext.schema import fields_of, names_of

Class = type[BaseModel]
HEADS = ("key", "description", "type", "default")
PAGES = {  # of each kind of part its key, its page, and a sentence
    "method": ("method", "methods", "A method is the rule by which clients train and what they share."),
    "mechanism": ("uplink", "mechanisms", "A mechanism changes an update before it leaves a client."),
    "aggregation": ("server.aggregation", "aggregations", "An aggregation combines the updates of a round's clients."),
    "corpus": ("corpus", "corpora", "A corpus is the texts and labels of each client."),
    "model": ("model", "models", "A model is the network that clients train."),
    "audit": ("audits", "audits", "An audit is an attack on what clients send. It changes no result."),
    "attack": ("adversaries.attack", "attacks", "An attack is what adversaries among the clients do."),
}
TOP = "top-level"  # anchor of the keys that are in no section
NOTE = "This page is written from the schema by `python -m docs`. `fedtext --keys NAME` shows the same."


def experiment() -> str:
    """Return the page of all keys but those of parts."""
    pages = {path: f"[{name}]({name}.md)" for path, name, *_ in PAGES.values()}
    parts = [
        "# Keys of an experiment",
        "Every key of an experiment file, with its type and default. Any of them can be set on the command line "
        "(`training.rounds=3`).",
        NOTE,
        table(
            ("key", "what it is"),
            [(f"[`{name}`](#{name if _has_section(name) else TOP})", _said(name)) for name in fields_of(Experiment)],
        ),
        "## Top level",
        table(HEADS, [_row(key, pages) for key in _plain()]),
    ]
    for name, field in fields_of(Experiment).items():
        key = Key(name, field, Experiment)
        if name in pages:
            names = ", ".join(f"`{called}`" for cls in key.classes for called in names_of(cls))
            parts += [f"## {name}", _sentence(key), f"One of {names}: see {pages[name]}."]
        elif _has_section(name):
            parts += [f"## {name}", _sentence(key), *_section(key.classes[0], f"{name}.", pages, 3)]
    return joined(parts)


def parts() -> dict[str, str]:
    """Return the page of each kind of part by its path in ``docs/``."""
    return {f"reference/{PAGES[kind.word][1]}.md": _page(kind) for kind in KINDS}


def _page(kind: Kind) -> str:
    path, name, about = PAGES[kind.word]
    classes = list(dict.fromkeys(kind.classes.values()))
    list_ = path in ("uplink", "audits")
    key = f"`{path}`, a list" if list_ else f"`{path}`"
    article = "an" if kind.word[0] in "aeiou" else "a"
    made = [
        f"# {name.capitalize()}",
        f"{about} Its key is {key}. [How to write your own](../how-to/write-{article}-{kind.word}.md).",
        NOTE,
        table(("name", "what it is"), [(_links(cls), prose(summary(cls))) for cls in classes]),
    ]
    seen: set[tuple[str, ...]] = set()
    nested: dict[tuple[str, ...], Key] = {}
    for cls in classes:
        prefix = f"{path}.{names_of(cls)[0]}." if list_ else f"{path}."
        rows, found = _rows(cls, prefix, {})
        nested |= found
        made += [f"## {', '.join(names_of(cls))}", docstring(cls)]
        made += [table(HEADS, rows)] if rows else ["It has no keys."]
    return joined([*made, *_choices(nested, seen, {}, 2)])


def _links(cls: Class) -> str:
    anchor = "-".join(names_of(cls))
    return ", ".join(f"[`{name}`](#{anchor})" for name in names_of(cls))


def _section(cls: Class, prefix: str, pages: dict[str, str], level: int) -> Iterator[str]:
    rows, nested = _rows(cls, prefix, pages)
    yield table(HEADS, rows)
    yield from _choices(nested, set(), pages, level)


def _choices(
    nested: dict[tuple[str, ...], Key], seen: set[tuple[str, ...]], pages: dict[str, str], level: int
) -> Iterator[str]:
    """Yield a section for each choice inside of sections, once for each set of classes.

    Args:
        nested: The keys that are choices, by the names of their classes.
        seen: Those that have been described; it is added to.
        pages: Pages of choices that are described elsewhere, by path.
        level: Level of the headings.
    """
    for names, key in nested.items():
        if names in seen:
            continue
        seen.add(names)
        yield f"{'#' * level} Values of {key.path}"
        further: dict[tuple[str, ...], Key] = {}
        for cls in key.classes:
            rows, found = _rows(cls, key.inside(cls), pages)
            further |= found
            yield f"**`{', '.join(names_of(cls))}`** {docstring(cls)}"
            yield table(HEADS, rows) if rows else ""
        yield from _choices(further, seen, pages, level)


def _rows(cls: Class, prefix: str, pages: dict[str, str]) -> tuple[list[list[str]], dict[tuple[str, ...], Key]]:
    """Return the rows of a class's keys with those of its sections, and its keys that are choices.

    Args:
        cls: The class.
        prefix: Prefix of the keys' paths.
        pages: Pages of choices that are described elsewhere, by path.
    """
    rows, nested = [], {}
    for name, field in fields_of(cls).items():
        if name == "name":
            continue
        key = Key(f"{prefix}{name}", field, cls)
        rows.append(_row(key, pages))
        if key.is_choice:
            if key.path not in pages:
                nested[tuple(called for each in key.classes for called in names_of(each))] = key
            continue
        for inner in key.classes:
            more, found = _rows(inner, key.inside(inner), pages)
            rows += more
            nested |= found
    return rows, nested


def _row(key: Key, pages: dict[str, str]) -> list[str]:
    default = "required" if key.field.is_required() else f"`{key.default}`" if key.default else ""
    where = f": {pages[key.path]}" if key.path in pages else ""
    return [f"`{key.path}`", prose(key.description) + where, prose(key.kind), default]


def _plain() -> Iterator[Key]:
    for name, field in fields_of(Experiment).items():
        if not _has_section(name):
            yield Key(name, field, Experiment)


def _has_section(name: str) -> bool:
    return bool(Key(name, fields_of(Experiment)[name], Experiment).classes) and name != "baselines"


def _said(name: str) -> str:
    return _sentence(Key(name, fields_of(Experiment)[name], Experiment))


def _sentence(key: Key) -> str:
    """Return a description as a sentence."""
    text = key.description
    return prose(text[:1].upper() + text[1:].removesuffix(".") + ".") if text else ""
