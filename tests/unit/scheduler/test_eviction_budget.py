"""How many pods are evicted within a minute, and for whom."""

import pytest

from parley.scheduler.eviction_budget import FEW_EVICTIONS, FOR_OTHERS, MOST_EVICTIONS, EvictionBudget


def used_up(budget: EvictionBudget, namespace: str, time: float) -> int:
    """How many pods are evicted, one by one, for pods of the namespace at that time."""
    for number in range(2 * MOST_EVICTIONS):
        if budget.seconds_left(namespace, 1, time) > 0:
            return number
        budget.note(namespace, time)
    raise AssertionError("no limit")


def test_one_namespace_leaves_evictions_for_others() -> None:
    budget = EvictionBudget()
    assert used_up(budget, "greedy", 0.0) == MOST_EVICTIONS - FOR_OTHERS
    assert used_up(budget, "modest", 1.0) == FEW_EVICTIONS
    assert budget.seconds_left("modest", 1, 1.0) == 60 - 1
    others = sum(used_up(budget, f"other-{number}", 2.0) for number in range(100))
    assert others == FOR_OTHERS - FEW_EVICTIONS


def test_after_a_minute_an_eviction_does_not_count() -> None:
    budget = EvictionBudget()
    assert used_up(budget, "a", 0.0) == used_up(budget, "a", 60.0) == MOST_EVICTIONS - FOR_OTHERS


@pytest.mark.parametrize("evictions", [MOST_EVICTIONS, 10 * MOST_EVICTIONS])
def test_a_plan_that_needs_more_waits_until_there_were_none(evictions: int) -> None:
    budget = EvictionBudget()
    assert budget.seconds_left("a", evictions, 0.0) == 0
    budget.note("b", 5.0)
    assert budget.seconds_left("a", evictions, 10.0) == 55
    assert budget.seconds_left("a", evictions, 65.0) == 0
