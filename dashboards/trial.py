"""Trials as dashboards see them: case, records of rounds, outcome."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dashboards.store import redacted
from fedtext.config.experiment import Experiment
from fedtext.records import RoundRecord

State = Literal["waiting", "running", "finished", "stopped", "failed"]
Ended = Literal["finished", "stopped", "failed"]
RunStatus = Literal["FINISHED", "FAILED", "KILLED"]  # as MLflow names them

KEY_LENGTH, VALUE_LENGTH = 250, 500  # characters of a parameter that every MLflow server accepts


class Case(Protocol):
    """A planned trial. ``overrides`` are the swept keys (dotted) with its values."""

    @property
    def id(self) -> str: ...
    @property
    def group(self) -> str: ...  # shared by the cases that differ in their seeds only
    @property
    def label(self) -> str: ...
    @property
    def baseline(self) -> bool: ...
    @property
    def overrides(self) -> Mapping[str, Any]: ...
    @property
    def experiment(self) -> Experiment: ...
    @property
    def problem(self) -> str: ...  # why it cannot run; empty if it can


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Args:
        status: ``stopped``: ended early by the scheduler.
        rows: The records of all its rounds.
        error: The cause of a failure.
        user_error: Whether that is a UserError, which the user can correct, such as a full disk.
    """

    status: Ended
    rows: tuple[RoundRecord, ...] = ()
    error: str = ""
    user_error: bool = False


@dataclass(frozen=True)
class Dataset:
    """The training data of a trial. ``digest`` identifies its content, ``source`` its origin."""

    name: str
    digest: str
    source: str = ""
    profile: Mapping[str, Any] | None = None  # counts worth showing: num_rows, clients, ...


@dataclass(frozen=True)
class About:
    """Facts about a trial beyond its experiment: tags (what is revealed, ...), dataset, and files (text by name)."""

    tags: Mapping[str, str] | None = None
    dataset: Dataset | None = None
    files: Mapping[str, str] = field(default_factory=dict)


def title(case: Case, group: bool = False) -> str:
    """Return the name of a trial, or of its group: its id, and its label unless the id contains it."""
    repeated = {f"{key}={value}" for key, value in case.overrides.items() if names_method(case, key)}
    label = one_line(" ".join(word for word in case.label.split(" ") if word not in repeated))
    name = case.group if group else case.id
    return name if not label or label in name else f"{name} {label}"


def names_method(case: Case, key: str) -> bool:
    """Whether the value of a swept key is the name of the method, beside which it need not be written.

    Args:
        case: The case.
        key: ``method``, or the name of a dimension of settings; its value is not that of a key with dots.
    """
    return "." not in key and bool(case.overrides[key] == case.experiment.method.name)


def merged(*histories: Iterable[RoundRecord]) -> tuple[RoundRecord, ...]:
    """Return the records of all ``histories``, one per round, in order. Of two of one round the later one is kept."""
    by_round = {record.round: record for records in histories for record in records}
    return tuple(by_round[round_] for round_ in sorted(by_round))


def one_line(text: str) -> str:
    """Return ``text`` without line breaks and control characters."""
    return "".join(c for c in " ".join(str(text).split()) if c.isprintable())


def say(sentence: str) -> None:
    """Print one sentence on standard error. Nothing is raised if it is closed or its disk is full: trials go on."""
    with suppress(OSError):
        print(one_line(sentence), file=sys.stderr, flush=True)


def short(text: str, most: int) -> str:
    """Return a text shortened to ``most`` characters. The middle is left out: names often differ in their ends."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[len(text) - half :]}"


def flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """Flatten nested values: ``{"method": {"lambda1": 0.1}}`` -> ``{"method.lambda1": "0.1"}``; lists by index.

    Empty lists and mappings have no entry. Long values are cut (the YAML artifact holds them whole), characters that
    MLflow refuses in a name become ``_``, and passwords in addresses are hidden.
    """
    if isinstance(value, Mapping | list | tuple):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        flat: dict[str, str] = {}
        for key, inner in items:
            flat.update(flatten(inner, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    text = redacted(value) if isinstance(value, str) else json.dumps(value)
    return {re.sub(r"[^\w\-. :/]", "_", prefix)[:KEY_LENGTH]: text[:VALUE_LENGTH]}
