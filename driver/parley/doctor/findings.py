"""A check's finding: its severity, the object that it is about, and the remedy."""

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
    """A finding that nothing is wrong."""
    return Finding(Severity.OK, text, "", about)


def warning(text: str, remedy: str, about: str = "") -> Finding:
    """A finding about something that works now, but may fail later or for some users."""
    return Finding(Severity.WARNING, text, remedy, about)


def error(text: str, remedy: str, about: str = "") -> Finding:
    """A finding about something that does not work until it is fixed."""
    return Finding(Severity.ERROR, text, remedy, about)


def unknown(text: str, remedy: str, about: str = "") -> Finding:
    """A finding about something that could not be checked."""
    return Finding(Severity.UNKNOWN, text, remedy, about)


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity: an error is worse than something unknown, and that is worse than a warning."""
    found = {finding.severity for finding in findings}
    order = (Severity.ERROR, Severity.UNKNOWN, Severity.WARNING)
    return next((severity for severity in order if severity in found), Severity.OK)
