"""The condition `Allocating` as it is read: there or not, under way or ended."""

import pytest

from parley.api.meta import Condition
from parley.sdk.standalone.conditions import allocating, in_progress

NOW = "2026-01-01T00:00:00Z"


def a_condition(type_: str, status: str) -> Condition:
    return Condition.model_validate(
        {"type": type_, "status": status, "reason": "InProgress", "message": "", "lastTransitionTime": NOW}
    )


@pytest.mark.parametrize(
    ("conditions", "found", "under_way"),
    [
        ((), None, False),
        ((a_condition("Accepted", "True"),), None, False),
        ((a_condition("Accepted", "True"), a_condition("Allocating", "True")), 1, True),
        ((a_condition("Allocating", "False"),), 0, False),
    ],
    ids=["none", "of-another-type", "under-way", "ended"],
)
def test_whether_an_allocation_is_under_way(
    conditions: tuple[Condition, ...], found: int | None, under_way: bool
) -> None:
    assert allocating(conditions) == (conditions[found] if found is not None else None)
    assert in_progress(conditions) is under_way
