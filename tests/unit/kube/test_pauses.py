"""Pauses after failures of one thing: they grow, and what is left of them counts down."""

from parley.kube.backoff import Backoff, Pauses


def test_a_pause_begins_with_a_failure_and_counts_down() -> None:
    pauses = Pauses(Backoff(first=4.0, longest=100.0))
    assert (pauses.left(0.0), pauses.until) == (0.0, 0.0)
    assert pauses.begin(10.0) == 4.0
    assert [pauses.left(now) for now in (10.0, 13.0, 14.0, 20.0)] == [4.0, 1.0, 0.0, 0.0]


def test_a_pause_that_was_ended_makes_the_next_one_no_shorter() -> None:
    pauses = Pauses(Backoff(first=4.0, longest=100.0))
    pauses.begin(0.0)
    pauses.end()
    assert pauses.left(1.0) == 0.0
    assert pauses.left_or_begin(1.0) == 8.0
    assert pauses.left_or_begin(3.0) == 6.0
