"""Large clusters: the one node that will do is found, soon with a driver's help, and without it in the end."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.builtin import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from parley.negotiation.answers import Answer, Answers
from parley.negotiation.rounds import DEFAULT_CANDIDATES, FIRST_CANDIDATES, MAX_CANDIDATES, Negotiation, negotiate

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

MANY = 5000
NAMES = [f"n{i:04}" for i in range(MANY)]


class Nodes:
    """All of them fit; every `each`-th is of the rack that a selector can name."""

    def __init__(self, names: Sequence[str], each: int = 500) -> None:
        self.names = names
        self.each = each

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def fits(self, node: str) -> bool:
        return True

    def matching(self, selectors: Sequence[NodeSelector]) -> Iterator[str]:
        return (name for name in self.names if not selectors or int(name[1:]) % self.each == 0)


def in_rack(rack: str) -> NodeSelector:
    term = NodeSelectorTerm(match_expressions=[NodeSelectorRequirement(key="rack", operator="In", values=[rack])])
    return NodeSelector(node_selector_terms=[term])


Opinion = tuple[str, ...] | NodeSelector | None


class Asked:
    """Drivers for which one node will do; the opinions are what they propose instead, one for each driver."""

    def __init__(self, node: str, *opinions: Opinion) -> None:
        self.node = node
        self.opinions = opinions
        self.rounds: list[tuple[str, ...]] = []

    def __call__(self, nodes: Sequence[str]) -> Answers:
        self.rounds.append(tuple(nodes))
        viable = (self.node,) if self.node in nodes else ()
        return {f"claim-{i}": Answer(viable, opinion) for i, opinion in enumerate(self.opinions)}


@given(st.integers(0, MANY - 1), st.integers(1, DEFAULT_CANDIDATES - 1), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_with_alternatives_it_is_found_in_the_second_round(where: int, others: int, chance: Any) -> None:
    node = NAMES[where]
    proposed = [node, *chance.sample(NAMES, others)][:DEFAULT_CANDIDATES]
    chance.shuffle(proposed)
    ask = Asked(node, tuple(proposed), None)
    outcome = negotiate(Nodes(NAMES), ask)
    assert outcome.viable == (node,)
    assert len(ask.rounds) <= 2
    assert len(ask.rounds[0]) == FIRST_CANDIDATES


@given(st.integers(0, 9))
@settings(max_examples=10, deadline=None)
def test_with_a_selector_of_alternatives_as_well(where: int) -> None:
    node = NAMES[where * 500]
    ask = Asked(node, in_rack("r"), None, tuple(NAMES[i * 500] for i in range(10)))
    outcome = negotiate(Nodes(NAMES), ask)
    assert outcome.viable == (node,)
    assert len(ask.rounds) <= 2


@given(st.integers(0, MANY - 1), st.sampled_from([DEFAULT_CANDIDATES, MAX_CANDIDATES]), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_without_any_help_every_node_is_asked_about_once_until_it_is_found(
    where: int, limit: int, drivers: int
) -> None:
    ask = Asked(NAMES[where], *[None] * drivers)
    outcome = negotiate(Nodes(NAMES), ask, limit=limit)
    assert outcome.viable == (NAMES[where],)
    asked = [node for nodes in ask.rounds for node in nodes]
    assert asked == NAMES[: len(asked)]
    assert len(asked) < where + 1 + limit
    assert max(map(len, ask.rounds)) <= limit
    assert outcome.round == len(ask.rounds)


@pytest.mark.parametrize("limit", [DEFAULT_CANDIDATES, MAX_CANDIDATES])
def test_if_no_node_will_do_each_was_asked_about_exactly_once(limit: int) -> None:
    ask = Asked("none", None, in_rack("r"))
    outcome = negotiate(Nodes(NAMES), ask, limit=limit)
    assert outcome.viable == ()
    assert Counter(node for nodes in ask.rounds for node in nodes) == dict.fromkeys(NAMES, 1)
    assert max(map(len, ask.rounds)) <= limit


@given(st.lists(st.sampled_from(NAMES[:60]), unique=True, max_size=32), st.integers(0, 59), st.integers(0, 3))
def test_the_same_holds_for_answers_that_come_later(proposed: list[str], where: int, fewer: int) -> None:
    """The next candidates depend on the answers only, not on when they come."""
    at_once, later = Asked(NAMES[where], tuple(proposed) or None), Asked(NAMES[where], tuple(proposed) or None)
    limit = DEFAULT_CANDIDATES >> fewer
    outcome = negotiate(Nodes(NAMES[:60]), at_once, limit=limit)
    negotiation = Negotiation(Nodes(NAMES[:60]), limit=limit)
    while not negotiation.over:
        answers = later(negotiation.outcome.candidates)
        assert negotiation.outcome.answers == {}
        negotiation.close(answers)
    assert (negotiation.outcome, later.rounds) == (outcome, at_once.rounds)
    assert outcome.viable == (NAMES[where],)


async def large_cluster(world: World, nodes: int) -> list[str]:
    names = [f"n{i:04}" for i in range(nodes)]
    for name in names:
        await world.add_node(name, labels={"rack": "r" if name.endswith("777") else "other"})
    await add_shelf_class(world)
    return names


def test_a_pod_finds_the_one_node_of_thousands(play: Any) -> None:
    async def scenario(world: World) -> None:
        names = await large_cluster(world, MANY)
        behaviour = Behaviour(places={"n3777": 3})
        world.start_parley(drivers=[ShelfDriver(behaviour)])
        behaviour.alternatives = ("n0042", "n3777")
        await world.add_pod("by-name", "shelf")
        await world.settle()
        assert await world.node_of("by-name") == "n3777"
        assert len(behaviour.asked) == 2
        behaviour.asked.clear()
        behaviour.alternatives = in_rack("r")
        await world.add_pod("by-selector", "shelf")
        await world.settle()
        assert await world.node_of("by-selector") == "n3777"
        assert len(behaviour.asked) == 2
        assert len(behaviour.asked[1]) == 5
        behaviour.asked.clear()
        behaviour.alternatives = None
        await world.add_pod("by-asking", "shelf")
        await world.settle()
        assert await world.node_of("by-asking") == "n3777"
        behaviour.asked.clear()
        await world.add_pod("too-late", "shelf")
        await world.settle()
        assert await world.node_of("too-late") == ""
        assert Counter(node for nodes in behaviour.asked for node in nodes) == dict.fromkeys(names, 1)
        assert max(map(len, behaviour.asked)) <= DEFAULT_CANDIDATES
        scheduling = await world.scheduling("too-late")
        assert len(scheduling.spec.candidate_nodes) <= DEFAULT_CANDIDATES
        assert scheduling.status.message == (
            "0 of 5000 nodes are available: nodes n0000, n0001, n0002 and 4997 more: claim gpu-0: full. "
            "Remedy: free resources, request less, or add nodes that have what is requested"
        )

    play(scenario)
