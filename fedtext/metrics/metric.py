"""The description of a metric."""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["evaluation", "training", "privacy", "attack", "traffic", "server", "cost", "sweep"]
Unit = Literal["fraction", "perplexity", "nats", "bits", "number", "bytes", "seconds", "rounds", "epsilon", "delta"]
When = Literal["every round", "evaluated rounds", "rounds of the audit", "last round", "once", "end of the sweep"]
EVALUATED: When = "evaluated rounds"
ATTACKED: When = "rounds of the audit"  # the evaluated ones that it names
LATE: When = "last round"


@dataclass(frozen=True)
class Metric:
    """A metric of a round, a run or a sweep.

    Args:
        name: Its name; parts in angle brackets are placeholders (``rounds_to_<metric>_<value>``).
        summary: Its line in a legend.
        details: Further sentences.
        kind: What it describes.
        unit: Its unit.
        better: Whether larger or smaller values are better.
        when: When it is computed.
        validation: Whether ``<name>_val`` is also computed, on validation texts.
        columns: Whether both, only the metric of test texts, or none has a column in the final table of a sweep.
        by_parts: Whether an audit, a mechanism or an aggregation reports it, so that a plug-in's may.
    """

    name: str
    summary: str
    details: str = ""
    kind: Kind = "evaluation"
    unit: Unit = "fraction"
    better: Literal["larger", "smaller", "neither"] = "larger"
    when: When = EVALUATED
    validation: bool = False
    columns: Literal["all", "test", "none"] = "none"
    by_parts: bool = False

    @property
    def split(self) -> Literal["test", "train", "none"]:
        """The texts on which it is computed; with the suffix ``_val`` these are validation texts."""
        if self.kind == "evaluation":
            return "test"
        return "train" if self.kind in ("training", "attack") else "none"

    def matches(self, name: str) -> bool:
        """Whether ``name`` is a logged name of this metric."""
        parts = re.split(r"<\w+>", self.name)
        pattern = ".+".join(map(re.escape, parts)) + ("(_val)?" if self.validation else "")
        return re.fullmatch(pattern, name) is not None
