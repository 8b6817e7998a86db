"""Findings of the doctor, for its tests."""

from collections.abc import Iterable

from sweeps.doctor.finding import Finding


def seen(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.status, finding.message) for finding in findings]


def only(findings: Iterable[Finding], status: str) -> Finding:
    """The one finding of this status."""
    (found,) = (finding for finding in findings if finding.status == status)
    return found
