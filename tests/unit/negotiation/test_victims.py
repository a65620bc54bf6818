"""Whose leaving does least harm: the lowest, then the fewest, then those with the fewest claims."""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.negotiation.preemption import NODES_COMPARED
from parley.negotiation.victims import Choice, Cost, Does, Holder, choose, cost

Devices = Mapping[str, int]


def pod(name: str, priority: int = 0, claims: int = 1) -> Holder:
    return Holder(name, priority, claims)


def needs(wanted: int, devices: Devices, free: Mapping[str, int] | None = None) -> Does:
    """A node does once so many devices are free there; the pods hold that many by their names."""

    def does(node: str, gone: Sequence[Holder]) -> bool:
        return (free or {}).get(node, 0) + sum(devices[one.uid] for one in gone) >= wanted

    return does


@pytest.mark.parametrize(
    ("holders", "wanted", "expected"),
    [
        ({"a": [pod("x", 2), pod("y", 1)]}, 1, Choice("a", (pod("y", 1),))),
        ({"a": [pod("x", 2)], "b": [pod("y", 1), pod("z", 1)]}, 1, Choice("b", (pod("y", 1),))),
        ({"a": [pod("x", 1), pod("y", 1)], "b": [pod("two", 1)]}, 2, Choice("b", (pod("two", 1),))),
        ({"a": [pod("x", 1, claims=3)], "b": [pod("y", 1)]}, 1, Choice("b", (pod("y", 1),))),
        ({"a": [pod("x", 5)], "b": [pod("y", 1), pod("z", 2)]}, 2, Choice("b", (pod("y", 1), pod("z", 2)))),
        ({"a": [pod("x")]}, 0, Choice("a", ())),
        ({"a": [pod("x")]}, 2, None),
        ({}, 1, None),
    ],
    ids=[
        "the lower one",
        "the node of the lower ones",
        "one rather than two",
        "the fewer claims",
        "two low ones rather than a high one",
        "nobody",
        "not enough",
        "no node",
    ],
)
def test_who_leaves(holders: Mapping[str, Sequence[Holder]], wanted: int, expected: Choice | None) -> None:
    devices = {"x": 1, "y": 1, "z": 1, "two": 2}

    assert choose(holders, needs(wanted, devices)) == expected


@given(
    holdings=st.dictionaries(
        st.sampled_from("ab"),
        st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 3)), max_size=5),
        max_size=2,
    ),
    wanted=st.integers(0, 6),
)
def test_nothing_does_less_harm(holdings: Mapping[str, list[tuple[int, int, int]]], wanted: int) -> None:
    holders = {
        node: [Holder(f"{node}{number}", priority, claims) for number, (priority, claims, _) in enumerate(pods)]
        for node, pods in holdings.items()
    }
    devices = {f"{node}{n}": held for node, pods in holdings.items() for n, (_, _, held) in enumerate(pods)}
    does = needs(wanted, devices)

    found = choose(holders, does)

    costs = [cost(some) for node, pods in holders.items() for some in subsets(pods) if does(node, some)]
    assert (found is None) == (not costs)
    if found is not None:
        assert does(*found)
        assert cost(found.victims) == min(costs)


def subsets(pods: Sequence[Holder]) -> list[tuple[Holder, ...]]:
    return list(chain.from_iterable(combinations(pods, size) for size in range(len(pods) + 1)))


def test_of_many_pods_no_more_leave_than_have_to() -> None:
    pods = [pod(f"p{number}", number % 3) for number in range(40)]

    found = choose({"a": pods}, needs(20, {one.uid: 1 for one in pods}))

    assert found is not None
    assert cost(found.victims) == Cost(1, 20, 20)


def test_nodes_that_will_not_do_are_passed_over() -> None:
    holders = {f"n{number}": [pod("small")] for number in range(2 * NODES_COMPARED)} | {"last": [pod("large")]}

    found = choose(holders, needs(2, {"small": 1, "large": 2}))

    assert found == Choice("last", (pod("large"),))
