"""The one decision of all paths: what may be allocated, where, and what is said if nowhere."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.control.builders import NAMESPACE, TOKENS, World, a_class, a_holding, a_pod, pending, played, user

from parley.api import reasons
from parley.api.models import ResourceClass
from parley.control.claims.podclaims import NODES, ROOM, PodClaim, Problem
from parley.control.decision.decide import (
    Blocked,
    Search,
    admit,
    as_transient,
    best,
    none_viable,
    question,
    survey,
)
from parley.control.decision.demand import Demand
from parley.control.decision.eligible import SuitableNodes
from parley.control.state import State
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.negotiation.answers import Answers
from parley.negotiation.rounds import FIRST_CANDIDATES, Outcome
from parley.sdk import Held, Request

POD = user("p")


def wanted(state: State, *claims: PodClaim) -> Demand:
    demand = admit(state, POD, claims, 0.0)
    assert isinstance(demand, Demand)
    return demand


def refused(state: State, *claims: PodClaim) -> Blocked:
    blocked = admit(state, POD, claims, 0.0)
    assert isinstance(blocked, Blocked)
    return blocked


def everywhere(state: State, class_: ResourceClass | None = None, **more: Any) -> Search:
    """All nodes that a class without suitableNodes finds."""
    given: dict[str, Any] = {"nodes": SuitableNodes(state, class_ or a_class(), "team", "uid"), "excluded": {}}
    return Search(**{**given, **more})


class OtherNodes(SuitableNodes):
    """Who chooses from these is not alike to who chooses from all."""

    @property
    def equivalence_key(self) -> Hashable:
        return "other"


class TestAdmit:
    """Whether the claims are understood, and within their class's limits."""

    def test_what_is_understood_and_within_the_limits_is_demanded(self) -> None:
        async def story(world: World) -> None:
            assert set(wanted(world.state, pending("a", count=2)).requests) == {TOKENS}

        played(story)

    def test_bad_parameters_block_until_the_class_or_the_claim_changes(self) -> None:
        async def story(world: World) -> None:
            blocked = refused(world.state, pending("good"), pending("bad", count=0))
            assert blocked.problem.code == reasons.PARAMETERS_INVALID
            assert blocked.problem.message.startswith(f"parameters of claim {NAMESPACE}/bad: count=0: ")
            assert set(blocked.problem.topics) == {
                ("class", "licence"),
                ("claim", NAMESPACE, "good"),
                ("claim", NAMESPACE, "bad"),
            }

        played(story)

    def test_a_full_limit_blocks_until_the_namespace_holds_less_or_the_class_changes(self) -> None:
        async def story(world: World) -> None:
            world.ledger.add(a_holding("held", "q", class_name="licence", units=3))
            class_ = a_class(limits=[{"units": 4}])
            wanted(world.state, pending("a", class_, count=1))
            problem = refused(world.state, pending("a", class_, count=2)).problem
            assert problem.code == reasons.LIMIT_REACHED
            assert problem.message == (
                f"namespace {NAMESPACE} holds 3 of 4 units that class licence allows it, 2 more wanted: "
                "delete pods or claims that hold some, or raise the class's limits[0].units"
            )
            assert problem.topics == (("limit", "licence", NAMESPACE), ("class", "licence"))

        played(story)

    def test_who_wants_as_much_of_a_full_class_waits_in_one_line(self) -> None:
        async def story(world: World) -> None:
            class_ = a_class(limits=[{"units": 0}])
            first, alike = refused(world.state, pending("a", class_)), refused(world.state, pending("b", class_))
            assert first.line == alike.line != refused(world.state, pending("a", class_, count=2)).line

        played(story)

    @settings(max_examples=15, deadline=None)
    @given(
        held=st.integers(0, 6),
        most=st.integers(0, 6) | st.none(),
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    )
    def test_what_is_admitted_never_exceeds_a_limit_and_what_fits_is_admitted(
        self, held: int, most: int | None, counts: list[int]
    ) -> None:
        async def story(world: World) -> None:
            world.ledger.add(a_holding("held", "q", class_name="licence", units=held))
            class_ = a_class(limits=[] if most is None else [{"units": most}])
            decision = admit(
                world.state, POD, [pending(f"c{n}", class_, count=c) for n, c in enumerate(counts)], 0.0
            )
            assert isinstance(decision, Demand) == (most is None or held + sum(counts) <= most)

        played(story)


class Prefers(TokensDriver):
    """A driver with preferences, so that more nodes are worth asking about."""

    name = TOKENS

    def score(self, request: Request[Wanted, Pool], nodes: Sequence[str]) -> Mapping[str, float]:
        return {"node-2": 1.0}


async def nodes(world: World, count: int) -> None:
    for number in range(count):
        await world.node(f"node-{number}")


class TestSurvey:
    """What drivers answer about the candidates."""

    def test_the_first_few_nodes_are_asked_about_unless_some_driver_has_preferences(self) -> None:
        asked: list[int] = []

        async def story(world: World) -> None:
            await nodes(world, FIRST_CANDIDATES + 2)
            outcome = survey(world.state, wanted(world.state, pending("a")), everywhere(world.state))
            asked.append(len(outcome.candidates))

        played(story)
        played(story, Prefers())
        assert asked == [FIRST_CANDIDATES, FIRST_CANDIDATES + 2]

    def test_a_choosy_search_asks_about_as_many_as_its_limit_allows(self) -> None:
        async def story(world: World) -> None:
            await nodes(world, 4)
            search = everywhere(world.state, limit=3, ask_many=True)
            assert len(survey(world.state, wanted(world.state, pending("a")), search).candidates) == 3

        played(story)

    def test_excluded_and_misfitting_nodes_are_never_viable(self) -> None:
        async def story(world: World) -> None:
            await nodes(world, 2)
            await world.node("cordoned", unschedulable=True)
            search = everywhere(world.state, excluded={"node-1": "is broken for good"}, enough=3)
            outcome = survey(world.state, wanted(world.state, pending("a")), search)
            assert outcome.viable == ("node-0",)
            assert outcome.refused == {"node-1": "claim a: is broken for good"}
            assert search.nodes.misfits == {"cordoned": "cordoned"}

        played(story)

    def test_answers_may_be_qualified_before_they_count(self) -> None:
        async def story(world: World) -> None:
            await nodes(world, 2)

            demand, search = wanted(world.state, pending("a")), everywhere(world.state)
            plain = question(world.state, demand, search)

            def answers(asked: Sequence[str]) -> Answers:
                return {name: replace(answer, viable=("node-1",)) for name, answer in plain(asked).items()}

            assert survey(world.state, demand, search, answers).viable == ("node-1",)

        played(story)


def blocked_at(state: State, claims: Sequence[PodClaim], search: Search | None = None) -> Blocked:
    search = search or everywhere(state)
    demand = wanted(state, *(claim for claim in claims if claim.holding is None))
    outcome = survey(state, demand, search)
    assert not outcome.viable
    return none_viable(state, claims, demand, search, outcome)


class TestNoneViable:
    """What is said when no node will do, and what may help."""

    def test_every_node_is_accounted_for_and_a_remedy_named(self) -> None:
        async def story(world: World) -> None:
            await nodes(world, 1)
            await world.node("cordoned", unschedulable=True)
            problem = blocked_at(world.state, [pending("a", count=9)]).problem
            assert problem.code == reasons.NOTHING_VIABLE
            assert problem.message == (
                "0 of 2 nodes are available: node cordoned: cordoned; "
                "node node-0: claim a: 4 of 4 tokens of class licence free, 9 wanted. "
                "Remedy: free resources, request less, or add nodes that have what is requested"
            )
            assert problem.topics == (
                ("driver", TOKENS),
                ("claim", NAMESPACE, "a"),
                ("class", "licence"),
                NODES,
                ROOM,
            )

        played(story)

    def test_where_no_driver_was_asked_there_were_no_candidates(self) -> None:
        async def story(world: World) -> None:
            blocked = blocked_at(world.state, [pending("a")])
            assert blocked.problem.code == reasons.NO_CANDIDATES
            assert blocked.problem.message == (
                "0 of 0 nodes are available: the cluster has no nodes. Remedy: add a node"
            )

        played(story)

    def test_claims_allocated_elsewhere_are_named_and_waited_for(self) -> None:
        async def story(world: World) -> None:
            held = PodClaim("held", "held", holding=a_holding("held", "q", node="node-7"))
            problem = blocked_at(world.state, [pending("a"), held]).problem
            assert problem.message.endswith(f". Claim {NAMESPACE}/held is allocated on node node-7")
            assert ("claim", NAMESPACE, "held") in problem.topics

        played(story)

    def test_who_is_alike_and_wants_the_same_waits_in_one_line(self) -> None:
        async def story(world: World) -> None:
            other = OtherNodes(world.state, a_class(), "team", "uid")
            searches: dict[str, dict[str, Any]] = {
                "a": {},
                "b": {},
                "c": {"nodes": other},
                "d": {"own_line": True},
            }
            lines = [
                blocked_at(world.state, [replace(pending(name), claim=None)], everywhere(world.state, **how)).line
                for name, how in searches.items()
            ]
            assert lines[0] == lines[1]
            assert len(set(lines)) == 3

        played(story)

    def test_who_names_another_claim_waits_for_something_else(self) -> None:
        async def story(world: World) -> None:
            lines = [blocked_at(world.state, [pending(name)]).line for name in ("a", "a", "b")]
            assert lines[0] == lines[1] != lines[2]

        played(story)

    def test_only_a_change_on_a_node_that_is_eligible_and_has_room_may_help(self) -> None:
        async def story(world: World) -> None:
            await nodes(world, 3)
            await world.node("cordoned", unschedulable=True)
            class_ = a_class(parameters={"pool": 1, "scope": "Node"})
            world.state.drivers[TOKENS].restore(in_use("node-0"))
            world.state.drivers[TOKENS].restore(in_use("node-1"))
            search = everywhere(world.state, class_, excluded={"node-2": "is broken for good"})
            helps = blocked_at(world.state, [pending("a", class_)], search).helps
            assert helps is not None
            changes: tuple[list[str], ...] = (["node-0"], ["cordoned"], ["node-2"], ["gone"], [])
            assert [helps(changed) for changed in changes] == [False] * 5
            await world.state.drivers[TOKENS].deallocate("uid-on-node-0")
            assert [helps(["node-1"]), helps(["node-1", "node-0"])] == [False, True]

        played(story)

    def test_what_is_given_back_anywhere_may_help_only_if_there_is_enough_for_the_request(self) -> None:
        async def story(world: World) -> None:
            await nodes(world, 2)
            class_, driver = a_class(parameters={"pool": 2}), world.state.drivers[TOKENS]
            for name in ("one", "two"):
                driver.restore(Held(name, "node-0", (), {"pool": "licence", "node": "node-0", "count": 1}))
            helps = blocked_at(world.state, [pending("a", class_)], everywhere(world.state, class_)).helps
            assert helps is not None
            assert not helps(None)
            await driver.deallocate("one")
            assert helps(None)

        played(story)

    def test_drivers_outside_may_have_room_on_every_node_that_is_eligible(self) -> None:
        async def story(world: World) -> None:
            await world.node("a")
            demand = wanted(world.state, pending("a", a_class(driver="outside.example.com"), standown_line=True))
            search = everywhere(world.state)
            helps = none_viable(world.state, demand.standalone, demand, search, Outcome()).helps
            assert helps is not None
            assert helps(["a"])
            assert not helps(["gone"])

        played(story)


def in_use(node: str) -> Held:
    """The one token of the node's pool, held by a claim."""
    return Held(f"uid-on-{node}", node, (), {"pool": "licence", "node": node, "count": 1})


class TestBest:
    """Which viable node is selected."""

    def test_preferences_decide_before_fewer_pods_and_nodes_to_avoid_come_last(self) -> None:
        async def story(world: World) -> None:
            demand = wanted(world.state, pending("a"))
            viable = ("node-1", "node-2", "node-3")
            world.cluster.usage.assume(a_pod("q"), "node-1")
            assert best(world.state, demand, viable) == "node-2"
            assert best(world.state, demand, viable, {"node-2"}) == "node-3"
            assert best(world.state, demand, ("node-2",), {"node-2"}) == "node-2"

        async def preferring(world: World) -> None:
            world.cluster.usage.assume(a_pod("q"), "node-2")
            demand = wanted(world.state, pending("a"))
            assert best(world.state, demand, ("node-1", "node-2")) == "node-2"
            assert best(world.state, demand, ("node-1", "node-2"), {"node-2"}) == "node-1"

        played(story)
        played(preferring, Prefers())


def test_what_passes_in_a_moment_is_not_told_and_is_woken_by_more() -> None:
    blocked = Blocked(Problem("Code", "words", (NODES,)), "line")
    passing = as_transient(blocked, ROOM)
    assert passing.problem == Problem("Code", "words", (NODES, ROOM), transient=True)
    assert not blocked.problem.transient
