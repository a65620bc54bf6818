"""Who gave way is looked at again as soon as nobody is left that it gave way to, and never forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from parley.scheduler.precedence import Precedence

A, B, C = (("team", name) for name in "abc")

STEPS = st.lists(st.tuples(st.sampled_from(["wake", "give way", "look"]), st.sampled_from([A, B, C])), max_size=30)


def test_who_gave_way_is_next_when_the_last_of_the_others_was_looked_at() -> None:
    order = Precedence()
    order.wake(A)
    order.wake(B)
    order.give_way(C)
    assert list(order.next()) == []
    order.reconcile_started(A)
    assert list(order.next()) == []
    order.reconcile_started(B)
    assert list(order.next()) == [C]


def test_until_it_is_looked_at_others_give_way_to_it_too() -> None:
    order = Precedence()
    order.wake(A)
    order.give_way(B)
    order.reconcile_started(A)
    assert list(order.next()) == [B]
    order.give_way(C)
    assert B in order.woken
    assert list(order.next()) == []
    order.reconcile_started(B)
    assert list(order.next()) == [C]


def test_those_that_came_count_by_their_priority_until_they_are_looked_at() -> None:
    order = Precedence()
    order.added(A, -5)
    order.added(A, -5)
    order.added(B, 0)
    assert order.any_added_above(0)
    assert not order.any_added_above(-5)
    order.reconcile_started(A)
    assert not order.any_added_above(0)
    assert order.any_added_above(1)


@given(STEPS)
def test_none_is_forgotten(steps: list[tuple[str, tuple[str, str]]]) -> None:
    """Whoever is woken is in the queue, or gave way; looking at all of the queue empties it."""
    order, queue = Precedence(), set()
    for step, key in steps:
        if step == "wake":
            order.wake(key)
            queue.add(key)
        elif key in queue:
            queue.discard(key)
            order.reconcile_started(key)
            if step == "give way":
                order.give_way(key)
            queue.update(order.next())
    while queue:
        order.reconcile_started(queue.pop())
        queue.update(order.next())
    assert not order.woken
