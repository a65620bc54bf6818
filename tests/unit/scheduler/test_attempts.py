"""What is remembered of an unbound pod: pauses double up to their longest, however long it waits."""

from collections.abc import Callable

import pytest

from parley.kube.backoff import Backoff
from parley.negotiation.waiting import Place
from parley.scheduler.attempts import CREATIONS, EVICTIONS, FAILURES, PATIENCE, REFUSALS, Attempt


def patience(attempt: Attempt) -> float:
    left = attempt.binding_seconds_left(10.0)
    attempt.not_bound_in_time()
    return left


@pytest.mark.parametrize(
    ("pause", "lengths"),
    [
        (lambda attempt: attempt.refusals.begin(10.0), REFUSALS),
        (lambda attempt: attempt.failures.begin(10.0), FAILURES),
        (lambda attempt: attempt.evictions.begin(10.0), EVICTIONS),
        (lambda attempt: attempt.creations.begin(10.0), CREATIONS),
        (patience, PATIENCE),
    ],
)
def test_pauses_double_up_to_the_longest(pause: Callable[[Attempt], float], lengths: Backoff) -> None:
    attempt, first = Attempt(Place(0, 0)), lengths.first
    found = [pause(attempt) for _ in range(2000)]
    assert found[:3] == pytest.approx([first, 2 * first, 4 * first])
    assert found[-1] == lengths.longest == max(found)
