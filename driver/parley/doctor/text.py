"""The output of a diagnosis: for terminals, and as data. No I/O."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from parley.api.wording import counted, printable
from parley.doctor.diagnosing import Diagnosis
from parley.doctor.findings import Finding, Severity

_WIDTH = 7
"""Of the longest severity."""

_MOST = 10
"""The most findings with the same remedy that are printed as text: users may cause any number of them."""


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """Each finding on a line, then how many there are. Those with the same remedy stand together, where the first
    of them was found, with the remedy once below them."""
    width = max((len(finding.check) for finding in diagnosis.findings), default=0)
    for findings in _together(diagnosis.findings):
        for finding in findings[:_MOST]:
            about = f"{finding.about}: " if finding.about else ""
            yield printable(f"{finding.severity.value:<{_WIDTH}}  {finding.check:<{width}}  {about}{finding.text}")
        if (left := len(findings) - _MOST) > 0:
            yield f"{'':<{_WIDTH}}  {'':<{width}}  and {left} more with the same remedy (-o wide has all)"
        if remedy := findings[0].remedy:
            number = f"for these {len(findings)}: " if len(findings) > 1 else ""
            yield printable(f"{'':<{_WIDTH}}  {'':<{width}}  -> {number}{remedy}")
    yield ""
    yield summary(diagnosis)


def _together(findings: Iterable[Finding]) -> Iterable[Sequence[Finding]]:
    """Findings grouped by remedy; each without one is a group of its own."""
    groups: dict[str | int, list[Finding]] = {}
    for number, finding in enumerate(findings):
        groups.setdefault(finding.remedy or number, []).append(finding)
    return groups.values()


COLUMNS = ("SEVERITY", "CHECK", "ABOUT", "FINDING", "REMEDY")


def cells(finding: Finding) -> tuple[str, ...]:
    """A finding as a row of a table."""
    return (finding.severity.value, finding.check, finding.about or "-", finding.text, finding.remedy or "-")


def summary(diagnosis: Diagnosis) -> str:
    """The diagnosis in one sentence."""
    counts = Counter(finding.severity for finding in diagnosis.findings)
    parts = [
        (counts[Severity.ERROR], "error", ""),
        (counts[Severity.WARNING], "warning", ""),
        (counts[Severity.UNKNOWN], "check that could not be made", "checks that could not be made"),
    ]
    found = [counted(*part) for part in parts if part[0]]
    return f"{', '.join(found)}." if found else f"All well: {counts[Severity.OK]} findings, nothing to fix."


def data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as `parley doctor -o json` prints it."""
    return {
        "verdict": diagnosis.verdict.value,
        "namespace": diagnosis.namespace,
        "version": diagnosis.program,
        "now": diagnosis.now,
        "items": [_item(finding) for finding in diagnosis.findings],
    }


def _item(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "severity": finding.severity.value,
        "about": finding.about,
        "finding": finding.text,
        "remedy": finding.remedy,
    }
