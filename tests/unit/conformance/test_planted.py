"""Each check fails for a driver that breaks its rule, and only it; a driver that breaks none passes all."""

import pytest
from tests.unit.conformance.kit import results

from parley.conformance.checks import CHECKS
from parley.conformance.results import CheckOutcome


def test_a_driver_that_keeps_the_protocol_passes_all_checks() -> None:
    found = results()

    assert [(r.check.name, r.seen or r.why) for r in found if r.outcome is not CheckOutcome.PASSED] == []
    assert len(found) == len(CHECKS) == len({check.name for check in CHECKS})


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_driver_that_breaks_one_rule_fails_its_check(check: object) -> None:
    name = getattr(check, "name", "")
    failed = [result for result in results(broken=name) if result.outcome is CheckOutcome.FAILED]

    assert [result.check.name for result in failed] == [name]


def test_the_checks_of_capacity_are_skipped_for_a_driver_that_gives_none() -> None:
    """They passed, though there was nothing to check."""
    found = [result for result in results(broken="no-capacity") if result.outcome is not CheckOutcome.PASSED]

    assert [(result.check.name, result.why) for result in found] == [
        ("capacity", "the answer has no capacity"),
        ("capacity-of-all", "the answer has no capacity"),
    ]
