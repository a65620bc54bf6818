"""What a check found: how bad it is, which object it is about, and how to fix it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad a finding is. UNKNOWN is what could not be checked."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `about` is the object as "Kind name" or "Kind namespace/name", "" if it is about the cluster;
    `remedy` is "" where nothing has to be done."""

    severity: Severity
    text: str
    remedy: str = ""
    about: str = ""
    check: str = ""


def ok(text: str, about: str = "") -> Finding:
    """Nothing to do."""
    return Finding(Severity.OK, text, "", about)


def warning(text: str, remedy: str, about: str = "") -> Finding:
    """Works, and may not go on working, or not for everybody."""
    return Finding(Severity.WARNING, text, remedy, about)


def error(text: str, remedy: str, about: str = "") -> Finding:
    """Something does not work until it is fixed."""
    return Finding(Severity.ERROR, text, remedy, about)


def unknown(text: str, remedy: str, about: str = "") -> Finding:
    """What could not be looked at."""
    return Finding(Severity.UNKNOWN, text, remedy, about)


def worst(findings: Iterable[Finding]) -> Severity:
    """An error counts more than what could not be checked, and that more than a warning."""
    found = {finding.severity for finding in findings}
    order = (Severity.ERROR, Severity.UNKNOWN, Severity.WARNING)
    return next((severity for severity in order if severity in found), Severity.OK)
