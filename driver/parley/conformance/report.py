"""The output of results: a table with what was expected and seen for each failure, and data."""

from collections.abc import Iterator, Sequence
from typing import Any

from parley.conformance.results import CheckOutcome, CheckResult

PAGE = "docs/driver-protocol.md"


def line(result: CheckResult) -> str:
    """A result as a line of the table."""
    rule = (
        result.check.rule if result.outcome is not CheckOutcome.SKIPPED else f"{result.check.rule} ({result.why})"
    )
    return f"{result.outcome.value:<8} {result.check.name:<26} {rule}"


def details(result: CheckResult) -> Iterator[str]:
    """The details of a failure: the object, what was expected by which section, what was seen."""
    if result.outcome is CheckOutcome.FAILED:
        yield f"         {result.about}"
        yield f'         expected: {result.expected} ({PAGE}, "{result.check.section}")'
        yield f"         seen: {result.seen}"


def summary(results: Sequence[CheckResult]) -> str:
    """The number of results by outcome."""
    counts = [f"{sum(r.outcome is outcome for r in results)} {outcome.value}" for outcome in CheckOutcome]
    return ", ".join(counts)


COLUMNS = ("OUTCOME", "CHECK", "SECTION", "RULE", "ABOUT", "EXPECTED", "SEEN")


def cells(result: CheckResult) -> tuple[str, ...]:
    """A result as a row of a table; for a skipped check with the reason."""
    about, check = result.about or "-", result.check
    seen = result.why if result.outcome is CheckOutcome.SKIPPED else result.seen
    return (
        result.outcome.value,
        check.name,
        check.section,
        check.rule,
        about,
        result.expected or "-",
        seen or "-",
    )


def data(result: CheckResult) -> dict[str, Any]:
    """A result as an item of `ConformanceReport`."""
    return {
        "check": result.check.name,
        "section": result.check.section,
        "rule": result.check.rule,
        "outcome": result.outcome.value,
        "about": result.about,
        "expected": result.expected,
        "seen": result.seen,
        "why": result.why,
    }
