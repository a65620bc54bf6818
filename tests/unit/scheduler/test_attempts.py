"""What is remembered of an unbound pod: pauses double up to their longest, however long it waits."""

from collections.abc import Callable

import pytest

from parley.negotiation.waiting import Place
from parley.scheduler.attempts import BLOCKS, PATIENCE, PAUSES, PREEMPTION_PAUSES, Attempt


def patience(attempt: Attempt, now: float) -> float:
    left = attempt.patience(now)
    attempt.give_up_waiting()
    return left


def preempted(attempt: Attempt, now: float) -> float:
    attempt.preempted(now)
    return attempt.until_preemption(now)


@pytest.mark.parametrize(
    ("pause", "first", "longest"),
    [
        (Attempt.pause, PAUSES.first, PAUSES.longest),
        (Attempt.block, BLOCKS.first, BLOCKS.longest),
        (patience, PATIENCE.first, PATIENCE.longest),
        (preempted, PREEMPTION_PAUSES.first, PREEMPTION_PAUSES.longest),
    ],
)
def test_pauses_double_up_to_the_longest(
    pause: Callable[[Attempt, float], float], first: float, longest: float
) -> None:
    attempt = Attempt(Place(0, 0))
    lengths = [pause(attempt, 10.0) for _ in range(2000)]
    assert lengths[:3] == pytest.approx([first, 2 * first, 4 * first])
    assert lengths[-1] == longest == max(lengths)
