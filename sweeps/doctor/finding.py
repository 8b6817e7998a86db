"""Results of the doctor's checks."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor.

    Attributes:
        section: What it is about: software, machine, storage, tracking, corpora, cluster or experiment.
        status: ``problem``: a command would fail; ``warning``: it would be slower, or use less than there is.
        message: What was found.
        remedy: What to do; empty if nothing has to be done.
    """

    section: str
    status: Status
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return asdict(self)

    @property
    def line(self) -> str:
        """The finding as a line of text."""
        return f"  {self.status:<7}  {self.message}{f': {self.remedy}' if self.remedy else ''}"


@dataclass(frozen=True)
class About:
    """Makes the findings of a section."""

    section: str

    def ok(self, message: str) -> Finding:
        """Return a finding with which nothing has to be done."""
        return Finding(self.section, "ok", message)

    def warning(self, message: str, remedy: str = "") -> Finding:
        """Return a finding with which commands work, but not as well as they could."""
        return Finding(self.section, "warning", message, remedy)

    def problem(self, message: str, remedy: str = "") -> Finding:
        """Return a finding with which a command would fail."""
        return Finding(self.section, "problem", message, remedy)


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 2 if there is a problem among the findings, else 0."""
    return 2 if any(finding.status == "problem" for finding in findings) else 0


def size(number: float) -> str:
    """Return a number of bytes in a unit that people read: ``6.1 MB``."""
    if number < 1000:
        return f"{number:.0f} B"
    power = min(4, int(math.log10(number)) // 3)
    return f"{number / 1000**power:.1f} {'kMGT'[power - 1]}B"
