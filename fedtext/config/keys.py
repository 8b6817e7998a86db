"""Descriptions of the keys of an experiment: the output of ``--keys`` and ``--keys NAME``."""

import difflib
import fnmatch
import inspect
import textwrap
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedtext.config.experiment import Experiment
from fedtext.config.key_types import type_in_words
from fedtext.errors import UserError
from fedtext.metrics import METRICS, Metric
from fedtext.schema import classes_of, fields_of, names_of

Class = type[BaseModel]
WIDTH = 110  # characters of a line
OTHERWISE = {  # other names that users may try
    **{"methods": "method", "models": "model", "corpora": "corpus", "corpuses": "corpus", "audit": "audits"},
    **{"mechanism": "uplink", "mechanisms": "uplink", "metric": "metrics"},
    "aggregations": "aggregation",
    **{"attacks": "attack", "adversary": "adversaries"},
}


@dataclass(frozen=True)
class Key:
    """A key of an experiment.

    Attributes:
        path: Its dotted path: ``training.rounds``, ``uplink.clip.norm``, ``method.lambda1``.
        field: Its field.
        owner: The class that has the key, of several that are possible there.
    """

    path: str
    field: FieldInfo
    owner: Class

    @property
    def classes(self) -> list[Class]:
        """Return the classes that a field can hold, if they have keys of their own."""
        return classes_of(self.field)

    @property
    def is_choice(self) -> bool:
        """Whether its value is one of several classes, chosen by name."""
        return bool(self.classes) and all(map(names_of, self.classes))

    @property
    def is_list(self) -> bool:
        """Whether its value is a list."""
        return typing.get_origin(self.field.annotation) is tuple

    def inside(self, cls: Class) -> str:
        """Return the prefix of the keys of ``cls``, one of the classes: ``method.``, ``uplink.clip.``."""
        return f"{self.path}.{names_of(cls)[0]}." if self.is_list and self.is_choice else f"{self.path}."

    @property
    def description(self) -> str:
        """The key's description; for a section without one, the summary of its class."""
        if self.field.description:
            return self.field.description
        return summary(self.classes[0]) if len(self.classes) == 1 else ""

    @property
    def kind(self) -> str:
        """Its type in words, with its range."""
        return type_in_words(self.field.annotation, self.field.metadata)

    @property
    def default(self) -> str:
        """Its default as written in an experiment; empty if there is none, or if it is a section."""
        return _default(self.field)


def keys(cls: Class = Experiment, prefix: str = "", choices: bool = True) -> Iterator[Key]:
    """Yield the keys of a class and of its sections, depth first, without the ``name`` of a class.

    Args:
        cls: The class.
        prefix: Prefix of their paths.
        choices: Whether to include the keys of classes that are chosen by name.
    """
    for name, field in fields_of(cls).items():
        if name == "name" and cls is not Experiment:
            continue
        key = Key(f"{prefix}{name}", field, cls)
        yield key
        if key.path == "baselines" or (key.is_choice and not choices):
            continue
        for inner in key.classes:
            yield from keys(inner, key.inside(inner), choices)


def about(name: str) -> str:
    """Describe a key or section by its path or last word, a class or a metric by its name, or ``metrics``.

    Args:
        name: ``kteps``, ``uplink``, ``training.optimizer``, ``lambda1``, ``Ag``, ...; empty for all keys. What is not a
            name is a pattern: ``training.*``, or a part of a name.

    Raises:
        UserError: Nothing has this name, nor matches it.
    """
    if not name:
        return listing()
    asked = OTHERWISE.get(name, name)
    if asked == "metrics":
        return metrics()
    there = list(keys())
    chosen = {(key.path, cls): key for key in there if key.is_choice for cls in key.classes if asked in names_of(cls)}
    exact = [key for key in there if key.path == asked]
    found = [_class(cls, key) for (path, cls), key in chosen.items() if path != "baselines"]
    found += [_key(key) for key in exact or ([] if found else [k for k in there if k.path.endswith(f".{asked}")])]
    found += ["\n".join(_metric(metric, "")) for metric in METRICS if metric.matches(name)]
    found = found or _matching(name, there)
    if found:
        return "\n\n".join(dict.fromkeys(found))
    words = {key.path for key in there} | {key.path.rpartition(".")[2] for key in there} | {"metrics"}
    words |= {called for key in there if key.is_choice for cls in key.classes for called in names_of(cls)}
    near = difflib.get_close_matches(name, sorted(words), n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}?" if near else "--keys alone lists all"
    raise UserError(
        f"--keys: there is no key, method, mechanism, aggregation, model, corpus, audit, attack or metric called "
        f"{name!r}; {advice}"
    )


def _matching(pattern: str, there: Sequence[Key]) -> list[str]:
    """Describe all keys, classes and metrics that match a pattern: a glob, or a part of a name, in any case."""
    glob = pattern.lower() if set(pattern) & set("*?[") else f"*{pattern.lower()}*"

    def matches(name: str) -> bool:
        return fnmatch.fnmatchcase(name.lower(), glob)

    keys = [key for key in there if matches(key.path)]
    described = ["\n".join(_owned(key)) for key in keys]
    choices = [key for key in there if key.is_choice and key.path != "baselines"]
    named = {f"{key.path}: {name}": cls for key in choices for cls in key.classes for name in names_of(cls)}
    classes = [f"{where}\n    {summary(cls)}" for where, cls in named.items() if matches(where.rpartition(": ")[2])]
    found = ["\n".join(_metric(metric, "")) for metric in METRICS if matches(metric.name)]
    return [*described, *classes, *found]


def listing() -> str:
    """List all keys with their defaults and descriptions, and all classes that can be chosen with their summaries."""
    lines: list[str] = []

    def walk(cls: Class, indent: str) -> None:
        for name, field in fields_of(cls).items():
            key = Key(name, field, cls)
            if name == "name" and cls is not Experiment:
                continue
            default = f" = {text}" if (text := _default(field)) else ""
            lines.append(f"{indent}{name}{default}   # {key.description}")
            for inner in () if name == "baselines" else key.classes:
                if key.is_choice:
                    lines.append(f"{indent}  [{' | '.join(names_of(inner))}]   # {summary(inner)}")
                walk(inner, indent + ("    " if key.is_choice else "  "))

    walk(Experiment, "")
    return "\n".join(lines)


def metrics() -> str:
    """List all metrics: name, unit, direction, split, when it is computed, and description."""
    lines = ["Metrics of rounds and runs. Fractions are shown in percent, and are from 0 to 1 in MLflow and files."]
    lines.append("With validation texts, those marked with * are also computed on these, as <name>_val.")
    lines.append("smaller or larger: the better direction; in attacks, for the clients.")
    kind = ""
    for metric in METRICS:
        if metric.kind != kind:
            kind = metric.kind
            lines += ["", f"{kind}:"]
        lines += _metric(metric, "  ")
    return "\n".join(lines)


def _metric(metric: Metric, indent: str) -> list[str]:
    """Describe a metric."""
    better = [] if metric.better == "neither" else [metric.better]
    split = [] if metric.split == "none" else [metric.split]
    facts = ", ".join([metric.unit, *better, *split, metric.when])
    first = f"{indent}{metric.name}{'*' if metric.validation else ''} ({facts})"
    return [first, *_wrapped(f"{metric.summary}. {metric.details}".strip(), f"{indent}    ")]


def summary(cls: Class) -> str:
    """Return the first line of a class's docstring."""
    return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0].replace("``", "`")


def _class(cls: Class, key: Key) -> str:
    """Describe a class that can be chosen by name, with its keys and its alternatives."""
    called = " | ".join(names_of(cls))
    details = inspect.cleandoc(cls.__doc__ or "").partition("\n")[2].strip().replace("``", "`")
    lines = [f"{key.path}: {called}", *_wrapped(summary(cls), "  ")]
    lines += ["", textwrap.indent(details, "  ", lambda line: bool(line.strip()))] if details else []
    own = list(keys(cls, key.inside(cls), choices=False))
    lines += ["", f"written: {_written(cls, key)}", "", "keys:" if own else "It has no keys."]
    for each in own:
        lines += _described(each)
    others = [other for other in key.classes if other is not cls]
    return "\n".join([*lines, *(["", f"alternatives ({key.path}):", *_table(others)] if others else [])])


def _key(key: Key) -> str:
    """Describe a key, or a section with all its keys."""
    lines = _owned(key)
    if key.is_choice:
        lines += ["", "a list of:" if key.is_list else "one of:", *_table(key.classes)]
        lines += ["", f"--keys NAME says more of each, as --keys {names_of(key.classes[0])[0]}"]
        return "\n".join(lines)
    for cls in key.classes:
        lines += ["", "keys:"]
        for each in keys(cls, key.inside(cls), choices=False):
            lines += _described(each)
    return "\n".join(lines)


def _described(key: Key, indent: str = "  ") -> list[str]:
    """Describe a key: a line with type and default, and its description below."""
    default = "; required" if key.field.is_required() else f"; default {key.default}" if key.default else ""
    return [f"{indent}{key.path}: {key.kind}{default}", *_wrapped(key.description, f"{indent}    ")]


def _owned(key: Key) -> list[str]:
    """Describe a key, with the class that has it if that is one of several."""
    first, *lines = _described(key, "")
    owner = f" (of {' | '.join(names_of(key.owner))})" if names_of(key.owner) else ""
    return [first.replace(":", f"{owner}:", 1), *lines]


def _written(cls: Class, key: Key) -> str:
    """Return an example of how a class is written, with one of its keys."""
    name, options = names_of(cls)[0], [option for option in fields_of(cls) if option != "name"]
    if not options:
        return f"{key.path}: [{name}]" if key.is_list else f"{key.path}: {name}"
    fields = fields_of(cls)
    required = [option for option in options if fields[option].is_required()]
    shown = (required or [option for option in options if _default(fields[option])] or options)[0]
    option = f"{shown}: {_default(fields[shown]) or '...'}"
    return f"{key.path}: [{{{name}: {{{option}}}}}]" if key.is_list else f"{key.path}: {{name: {name}, {option}}}"


def _table(classes: Sequence[Class]) -> list[str]:
    named = {" | ".join(names_of(cls)): summary(cls) for cls in classes}
    width = max(map(len, named))
    return [f"  {name.ljust(width)}  {text}" for name, text in named.items()]


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def _default(field: FieldInfo) -> str:
    """Return the default as written in an experiment; empty if there is none, or if it is a section."""
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return getattr(value, "name", "")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return "null" if value is None else str(value)
