"""What is remembered of nodes: in steps that are counted, and never more of it than is of use."""

from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.drivers.varied import Gi, many_demands, many_kinds

from parley.drivers.device.findings import (
    DEMANDS,
    RECENT,
    STEPS_PER_CALL,
    STEPS_PER_NODE,
    Findings,
    NodeFinding,
)
from parley.drivers.device.flow import Steps
from parley.drivers.device.packing import ClaimDemand, DeviceKind, Group, Stock


class Nodes:
    """The stocks of nodes, each device of a kind of its own."""

    def __init__(self, stocks: dict[str, list[DeviceKind]]) -> None:
        self.stocks: dict[str, Stock] = {
            node: {(kind, kind.slices): (f"d{number}",) for number, kind in enumerate(kinds)}
            for node, kinds in stocks.items()
        }

    def stock(self, node: str) -> Stock:
        return self.stocks.get(node, {})


@given(
    st.lists(many_demands, min_size=1, max_size=128).map(tuple),
    st.dictionaries(st.sampled_from("abcdefgh"), st.lists(many_kinds, min_size=1, max_size=64), min_size=1),
    st.integers(0, STEPS_PER_NODE),
)
@settings(max_examples=40, deadline=None)
def test_all_searches_of_a_call_have_its_steps_together(
    wanted: tuple[ClaimDemand, ...], stocks: dict[str, list[DeviceKind]], at_most: int
) -> None:
    findings, steps = Findings(Nodes(stocks).stock), Steps(STEPS_PER_CALL)
    found = dict(findings.each(wanted, stocks, steps, at_most))
    assert found.keys() == stocks.keys()
    assert 0 <= steps.left <= STEPS_PER_CALL
    assert STEPS_PER_CALL - steps.left <= at_most * len(stocks)
    for node, finding in found.items():
        if finding in (NodeFinding.ROOM, NodeFinding.NO_ROOM):
            assert (findings.pack(wanted, node) is not None) == (finding is NodeFinding.ROOM)


ONE = (ClaimDemand(1, None, 0, False),)
TWO = (ClaimDemand(1, None, 0, False), ClaimDemand(1, "x", 0, False))
PAIR = [DeviceKind(Gi, 1, "x"), DeviceKind(Gi, 1, "y")]


def test_what_was_found_costs_nothing_again_nor_does_a_node_that_is_like_another() -> None:
    nodes = Nodes({"a": PAIR, "b": PAIR})
    findings, steps = Findings(nodes.stock), Steps(STEPS_PER_CALL)
    assert dict(findings.each(TWO, ["a"], steps, STEPS_PER_NODE)) == {"a": NodeFinding.ROOM}
    spent = STEPS_PER_CALL - steps.left
    assert spent
    assert dict(findings.each(TWO, ["a", "b"], steps, STEPS_PER_NODE)) == dict.fromkeys("ab", NodeFinding.ROOM)
    assert STEPS_PER_CALL - steps.left == spent


@pytest.mark.parametrize("wanted", [ONE, TWO], ids=["one claim", "two claims"])
def test_a_changed_node_is_searched_again(wanted: tuple[ClaimDemand, ...]) -> None:
    nodes = Nodes({"a": PAIR})
    findings = Findings(nodes.stock)
    assert dict(findings.each(wanted, ["a"], Steps(STEPS_PER_CALL), STEPS_PER_NODE)) == {"a": NodeFinding.ROOM}
    nodes.stocks["a"] = {(DeviceKind(Gi, 2, "x"), 1): ("d0",)}
    assert dict(findings.each(wanted, ["a"], Steps(STEPS_PER_CALL), STEPS_PER_NODE)) == {"a": NodeFinding.NO_ROOM}


@pytest.mark.parametrize("wanted", [ONE, TWO], ids=["one claim", "two claims"])
def test_what_was_not_found_out_with_few_steps_is_tried_again_with_more(wanted: tuple[ClaimDemand, ...]) -> None:
    findings = Findings(Nodes({"a": PAIR}).stock)
    assert dict(findings.each(wanted, ["a"], Steps(STEPS_PER_CALL), 1)) == {"a": None}
    assert dict(findings.each(wanted, ["a"], Steps(1), STEPS_PER_NODE)) == {"a": None}
    assert dict(findings.each(wanted, ["a"], Steps(STEPS_PER_CALL), STEPS_PER_NODE)) == {"a": NodeFinding.ROOM}


def test_the_demands_that_were_asked_for_last_are_remembered() -> None:
    findings, steps = Findings(Nodes({"a": PAIR}).stock), Steps(10**9)

    def many(count: int) -> tuple[ClaimDemand, ...]:
        return (ClaimDemand(count, "z", 0, False), *ONE)

    for count in range(1, DEMANDS + 10):
        list(findings.each(TWO, ["a"], steps, STEPS_PER_NODE))
        list(findings.each(many(count), ["a"], steps, STEPS_PER_NODE))
    left = steps.left
    list(findings.each(TWO, ["a"], steps, STEPS_PER_NODE))
    assert steps.left == left
    list(findings.each(many(1), ["a"], steps, STEPS_PER_NODE))
    assert steps.left < left


class Weighed(dict[Group, tuple[str, ...]]):
    """A stock of which a test sees whether it is still there."""


def test_what_nodes_had_is_forgotten_with_all_but_the_demands_that_were_asked_for_last() -> None:
    nodes, kept = Nodes({}), list[ref[Weighed]]()
    findings = Findings(nodes.stock)
    for count in range(1, 5 * RECENT):
        for node in "ab":
            had = nodes.stocks[node] = Weighed({(PAIR[0], 1): (f"{node}{count}",)})
            kept.append(ref(had))
            del had
        list(findings.each((ClaimDemand(count, "z", 0, False), *ONE), "ab", Steps(10**9), STEPS_PER_NODE))
    assert sum(one() is not None for one in kept) == 2 * RECENT


@given(
    st.lists(many_demands, min_size=1, max_size=6).map(tuple),
    st.lists(many_kinds, max_size=12),
)
def test_a_node_has_room_exactly_where_a_way_is_found(
    wanted: tuple[ClaimDemand, ...], kinds: list[DeviceKind]
) -> None:
    findings = Findings(Nodes({"a": kinds}).stock)
    assert findings.has_room(wanted, "a", STEPS_PER_NODE) == (findings.pack(wanted, "a") is not None)


def test_what_is_not_found_out_soon_may_have_room() -> None:
    findings = Findings(Nodes({"a": PAIR}).stock)
    assert findings.has_room(TWO, "a", 1)
    assert not findings.has_room((ClaimDemand(3, None, 0, False), *ONE), "a", 1)
