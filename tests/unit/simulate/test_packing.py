"""Random mixes of pods and nodes end with nearly as many devices in use as an exact packer gets into use.

`python -m tests.packing.mixes` plays more of them.
"""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.packing.exact import most_in_use
from tests.packing.mixes import SECOND_SCHEDULER, Mix, mix, play, share

LEAST = 0.98


def by_trying(nodes: list[int], wanted: list[int]) -> int:
    """The most in use, by trying every node, and none, for every pod."""
    best = 0
    for places in product(range(-1, len(nodes)), repeat=len(wanted)):
        used = [
            sum(size for size, at in zip(wanted, places, strict=True) if at == node) for node in range(len(nodes))
        ]
        if all(amount <= room for amount, room in zip(used, nodes, strict=True)):
            best = max(best, sum(used))
    return best


@given(st.lists(st.integers(0, 8), max_size=3), st.lists(st.integers(1, 8), max_size=5))
def test_the_packer_that_others_are_measured_by_is_exact(nodes: list[int], wanted: list[int]) -> None:
    assert most_in_use(nodes, wanted) == by_trying(nodes, wanted)


@pytest.mark.parametrize("scheduler", ["default-scheduler", SECOND_SCHEDULER])
def test_a_pod_that_fits_into_the_last_gap_gets_it(scheduler: str) -> None:
    tight = Mix((8, 4, 2, 1), (2, 1, 4, 8))
    assert play(tight, scheduler).in_use == 15


@pytest.mark.parametrize(
    ("scheduler", "first", "mixes"), [("default-scheduler", 0, 150), (SECOND_SCHEDULER, 0, 50)]
)
def test_random_mixes_are_packed_nearly_as_well_as_they_can_be(scheduler: str, first: int, mixes: int) -> None:
    results = [play(mix(seed), scheduler) for seed in range(first, first + mixes)]
    assert all(one.in_use <= one.most for one in results)
    assert share(results) >= LEAST
