"""Checks whether the parts of an experiment are compatible.

A rule is a function of an experiment that yields a sentence for each problem: which key, why, and what to do. Rules are
grouped in files by subject, and a plug-in adds its own to ``RULES``. The first problem is reported.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fedtext.config.compatibility import (
    adapters,
    adversaries,
    aggregation,
    audits,
    buffer,
    canaries,
    engine,
    evaluation,
    methods,
    privacy,
    secure,
    size,
    texts,
)
from fedtext.config.loading import LISTS

if TYPE_CHECKING:
    from fedtext.config.settings import Settings

Rule = Callable[["Settings"], Iterator[str]]

RULES: list[Rule] = [
    *size.RULES,  # first: others may compute with these numbers
    *texts.RULES,
    *methods.RULES,
    *evaluation.RULES,
    *privacy.RULES,
    audits.names,
    privacy.needs_table,
    *audits.RULES,
    *privacy.ROWS,
    *aggregation.RULES,
    *adapters.RULES,
    *secure.RULES,
    *buffer.RULES,
    *canaries.RULES,
    *adversaries.RULES,
    *methods.OF_ONE_METHOD,
    *engine.RULES,
]
LISTS.append(RULES)


def problems(experiment: "Settings") -> Iterator[str]:
    """Yield a sentence for each problem of an experiment."""
    for rule in RULES:
        yield from rule(experiment)
