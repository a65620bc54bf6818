"""The step depends on the set of states and on nothing else."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.negotiation.states import ClaimState, Step, next_step

S = ClaimState

CASES = [
    ("nothing is allocated", [S.PENDING], False, Step.NEGOTIATE),
    (
        "one claim is recorded, the other lost its write in a crash",
        [S.ALLOCATED, S.PENDING],
        False,
        Step.NEGOTIATE,
    ),
    (
        "one driver allocated, another one has yet to answer",
        [S.UNWRITTEN, S.PENDING],
        False,
        Step.NEGOTIATE,
    ),
    ("a claim of a running pod is allocated but not recorded", [S.UNWRITTEN, S.PENDING], True, Step.WRITE),
    ("a driver allocated, the API does not show it", [S.UNWRITTEN, S.ALLOCATED], False, Step.WRITE),
    ("our write is not in the cache yet", [S.STALE, S.PENDING], False, Step.NOTHING),
    ("all is recorded", [S.ALLOCATED, S.ALLOCATED], False, Step.NOTHING),
    ("the scheduler cleared a claim", [S.CLEARED, S.ALLOCATED], False, Step.RELEASE),
    ("somebody cleared a running pod's claim", [S.CLEARED], True, Step.WRITE),
    ("nodes are offered", [S.OFFERED], False, Step.FOLLOW_OFFER),
    ("one of the offers is answered, the other's write is missing", [S.UNWRITTEN, S.OFFERED], False, Step.WRITE),
    ("a pod was bound elsewhere by others", [S.MISPLACED], True, Step.RELEASE),
    ("a late write of an earlier leader, pod waiting", [S.UNKNOWN], False, Step.RELEASE),
    ("a late write of an earlier leader, pod running", [S.UNKNOWN], True, Step.ADOPT),
    ("a shareable claim is there", [S.JOINABLE], False, Step.NEGOTIATE),
    ("bound by others before anything was allocated", [S.PENDING], True, Step.NEGOTIATE),
]


@pytest.mark.parametrize(
    ("states", "bound", "step"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_next_step(states: list[ClaimState], bound: bool, step: Step) -> None:
    for order in permutations(states):
        assert next_step(order, bound=bound) is step


@given(st.lists(st.sampled_from(ClaimState), min_size=1), st.booleans())
def test_what_a_bound_pod_holds_where_it_runs_is_never_taken_back(states: list[ClaimState], bound: bool) -> None:
    step = next_step(states, bound=bound)
    if bound and S.MISPLACED not in states:
        assert step is not Step.RELEASE


@given(st.lists(st.sampled_from(ClaimState), min_size=1), st.booleans())
def test_nothing_is_done_on_a_stale_view(states: list[ClaimState], bound: bool) -> None:
    if S.STALE in states:
        assert next_step(states, bound=bound) is Step.NOTHING
