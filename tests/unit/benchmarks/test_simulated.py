"""Decisions are told apart from what the simulated rest of the cluster does."""

import sys

from benchmarks import simulated
from benchmarks.simulated import Crowd, Decisions


def test_crowds_are_named_after_how_many_wait_and_for_how_many_things() -> None:
    assert Crowd(1000).name == "simulated-waiting-1000"
    assert Crowd(1000, wishes=10).name == "simulated-waiting-1000-wishes-10"
    assert Crowd(300, wishes=3, for_cpu=True).name == "simulated-waiting-300-wishes-3-for-cpu"


def test_the_first_crowd_is_empty_so_that_the_others_are_compared_with_it() -> None:
    assert simulated.CROWDS[0].waiting == 0


def test_deciding_takes_time_for_pods_that_come_and_for_those_that_wait_for_what_they_leave() -> None:
    result = simulated.measure(Crowd(20), pods=20)
    assert result.decision_ms_per_pod > 0
    assert (result.waiting, result.pods) == (20, 20)


def test_time_in_which_nothing_is_decided_does_not_count() -> None:
    decisions = Decisions()
    decisions.take(0, sys._getframe())
    assert decisions.milliseconds() == 0
