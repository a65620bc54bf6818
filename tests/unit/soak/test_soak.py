"""A hundred thousand steps of random lives, every rule checked after each. `make soak` makes a million."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
from tests.soak.planted import BUGS
from tests.soak.running import Played, play
from tests.soak.several import caught, pool, worlds

SEED = 2026
STEPS = 100_000
WORLDS = 12
"""A planted bug is found in one of so many worlds."""


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with pool(2) as executor:
        yield executor


def test_a_hundred_thousand_steps_break_no_rule() -> None:
    steps = 0
    for outcome in worlds(SEED, STEPS, processes=2):
        assert isinstance(outcome, Played), outcome
        steps += outcome.steps

    assert steps >= STEPS


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_breaks_its_rule(processes: ProcessPoolExecutor, bug: str) -> None:
    message = processes.submit(caught, bug, SEED, WORLDS).result()

    assert message.startswith(BUGS[bug].rules), message or f"not found in {WORLDS} worlds"


def test_a_world_takes_the_same_course_again(processes: ProcessPoolExecutor) -> None:
    first, second = (processes.submit(play, SEED, 0) for _ in range(2))

    assert first.result() == second.result()


@pytest.mark.parametrize(("seed", "world"), [(43, 9), (6, 3)], ids=["extender", "native"])
def test_claims_for_drivers_outside_are_not_made_in_circles(
    processes: ProcessPoolExecutor, seed: int, world: int
) -> None:
    """A pod that was gone, which was not seen yet, got its claims again as fast as they were collected."""
    outcome = processes.submit(play, seed, world).result()

    assert isinstance(outcome, Played), outcome


def test_whom_a_scheduler_let_in_keeps_a_cleared_claim_that_its_last_known_user_leaves(
    processes: ProcessPoolExecutor,
) -> None:
    """What a pod used that ran on was kept for nobody, and the pod was not reckoned with any more."""
    outcome = processes.submit(play, 12, 2).result()

    assert isinstance(outcome, Played), outcome


def test_no_pod_is_bound_with_what_was_cleared_before_that_is_seen(processes: ProcessPoolExecutor) -> None:
    """A binding had failed, its claim was being given back, and what followed the first write failed, too."""
    outcome = processes.submit(play, 115, 6).result()

    assert isinstance(outcome, Played), outcome
