"""The list of checks: what they need comes before them, and their sections are headings of the protocol's page."""

import re
from pathlib import Path

import pytest

from parley.conformance.checks import CHECKS
from parley.conformance.results import Check

PAGE = (Path(__file__).parents[3] / "docs" / "driver-protocol.md").read_text()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_names_its_rule_and_where_it_stands(check: Check) -> None:
    assert check.section in re.findall(r"(?m)^## (.+)$", PAGE)
    assert re.fullmatch(r"[A-Z][^.]+\.", check.rule)
    assert re.fullmatch(r"[a-z][a-z-]{2,24}", check.name)


def test_what_a_check_needs_comes_before_it() -> None:
    seen: set[str] = set()
    for check in CHECKS:
        assert set(check.needs) <= seen, check.name
        seen.add(check.name)
