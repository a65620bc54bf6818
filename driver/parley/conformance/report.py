"""Results for people, as a table with what was expected and seen of each failure, and as data."""

from collections.abc import Iterator, Sequence
from typing import Any

from parley.conformance.results import CheckOutcome, CheckResult

PAGE = "docs/driver-protocol.md"


def line(result: CheckResult) -> str:
    """One result in the table."""
    rule = (
        result.check.rule if result.outcome is not CheckOutcome.SKIPPED else f"{result.check.rule} ({result.why})"
    )
    return f"{result.outcome.value:<8} {result.check.name:<26} {rule}"


def details(result: CheckResult) -> Iterator[str]:
    """Of a failure: which object, what was expected by which section, what was seen."""
    if result.outcome is CheckOutcome.FAILED:
        yield f"         {result.about}"
        yield f'         expected: {result.expected} ({PAGE}, "{result.check.section}")'
        yield f"         seen: {result.seen}"


def summary(results: Sequence[CheckResult]) -> str:
    """How many of each."""
    counts = [f"{sum(r.outcome is outcome for r in results)} {outcome.value}" for outcome in CheckOutcome]
    return ", ".join(counts)


COLUMNS = ("OUTCOME", "CHECK", "SECTION", "RULE", "ABOUT", "EXPECTED", "SEEN")


def cells(result: CheckResult) -> tuple[str, ...]:
    """A row of a table; of a check that was skipped, why."""
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
