"""What is kept on nodes for pods that others were evicted for: from whom, and until when."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import World, a_holding, played, user

from parley.control.decision.kept import other_nominations
from parley.control.nominations import LEAST, Nomination, Nominations
from parley.control.objects.pod import reference
from parley.drivers.tokens import TokensDriver
from parley.sdk import ClaimRequest, Parameters, PodReference, Request

DRIVER = TokensDriver.name


def nomination(pod: str, node: str = "a", priority: int = 5, **fields: Any) -> Nomination:
    requests: dict[str, Request[Any, Any]] = {DRIVER: Request(user(pod), ())}
    given: dict[str, Any] = {"amounts": {}, "terminating": frozenset(), "freed": {}, "until": 100.0}
    return Nomination(user(pod), priority, node, requests, **{**given, **fields})


def made(*nominations: Nomination) -> tuple[Nominations, list[PodReference]]:
    """They are made one after the other. And the pods whose nominations have ended, as they do."""
    ended: list[PodReference] = []
    found = Nominations(lambda one: ended.append(one.pod))
    for one in nominations:
        found.add(one)
    return found, ended


@pytest.mark.parametrize(
    ("uid", "priority", "drivers", "least"),
    [
        ("uid-low", 1, {DRIVER}, 1),
        ("uid-equal", 5, {DRIVER}, 5),
        ("uid-high", 6, {DRIVER}, None),
        (user("mine").uid, 5, {DRIVER}, 6),
        ("uid-low", 1, {"other.example.com"}, None),
        ("uid-of-a-claim", None, {DRIVER}, LEAST),
    ],
    ids=["lower", "equal", "higher", "its own", "another driver", "a claim without a pod"],
)
def test_who_is_not_above_the_pod_has_to_leave_it_enough_on_the_node(
    uid: str, priority: int | None, drivers: set[str], least: int | None
) -> None:
    nominations, _ = made(nomination("mine"))
    assert nominations.shared(uid, priority, drivers) == ({} if least is None else {"a": least})


def test_pods_that_are_nominated_for_a_node_leave_each_other_room_there() -> None:
    nominations, _ = made(nomination("first"), nomination("second"), nomination("third", node="b"))
    assert nominations.shared(user("second").uid, 5, {DRIVER}) == {"a": 6, "b": 5}
    beside = nominations.others_on(user("second").uid, 5, "a")
    assert [one.pod for one in beside] == [user("first")]
    assert nominations.others_on(user("second").uid, 6, "a") == []


def test_a_pod_whose_claims_are_released_again_keeps_the_room_that_it_counts_for_no_more() -> None:
    async def story(world: World) -> None:
        first = await world.pod("first")
        wanted = ClaimRequest("c", "uid-c", "c", "licence", Parameters(), Parameters())
        requests: dict[str, Any] = {DRIVER: Request(reference(first), (wanted,))}
        world.state.nominations.add(replace(nomination("first"), pod=reference(first), requests=requests))
        world.ledger.add(a_holding("c", node="a", pods={first.metadata.uid: reference(first)}))

        assert [other.pod for other in other_nominations(world.state, "another", 5, "a")] == [reference(first)]

        world.cluster.usage.assume(first, "a")
        assert other_nominations(world.state, "another", 5, "a") == []

    played(story)


def test_a_higher_one_takes_the_node_from_lower_ones() -> None:
    nominations, ended = made(nomination("equal"), nomination("low", priority=1))
    losers = nominations.add(nomination("high"))
    assert losers == ended == [user("low")]
    assert nominations.of(user("low").uid) is None
    assert nominations.of(user("equal").uid) is not None


def test_one_that_is_made_again_takes_nothing_from_those_that_were_made_beside_it() -> None:
    """Else the two would take it from each other in turns, without any time passing."""
    first = nomination("high", terminating=frozenset({"a", "b"}))
    nominations, ended = made(first, nomination("low", priority=1))
    assert nominations.add(replace(first, terminating=frozenset({"b"}), until=200.0)) == ended == []
    assert nominations.of(user("low").uid) is not None
    assert nominations.add(replace(first, terminating=frozenset({"b", "c"}))) == ended == [user("low")]


def test_another_node_ends_what_was_kept_on_the_first() -> None:
    nominations, ended = made(nomination("mine"), nomination("mine", until=200.0))
    assert ended == []
    nominations.add(nomination("mine", node="b"))
    assert ended == [user("mine")]
    assert nominations.shared("uid-low", 1, {DRIVER}) == {"b": 1}


def test_a_named_claim_is_kept_with_the_node() -> None:
    nominations, _ = made(nomination("mine", claims={"uid-disk": "disk"}))
    assert nominations.has_claim(user("mine").uid, "uid-disk")
    assert not nominations.has_claim(user("other").uid, "uid-disk")
    asked = {
        ("disk", "mine", 5): False,
        ("disk", "other", 4): True,
        ("disk", "other", 5): True,
        ("disk", "other", 6): False,
        ("tape", "other", 5): False,
    }
    for (claim, pod, priority), kept in asked.items():
        assert nominations.is_claim_kept(f"uid-{claim}", user(pod).uid, priority) is kept
    nominations.end(user("mine").uid)
    assert not nominations.is_claim_kept("uid-disk", user("other").uid, 4)


def test_one_that_wants_one_more_named_claim_is_another() -> None:
    first = nomination("high", claims={"uid-disk": "disk"})
    nominations, ended = made(replace(first, claims={}), nomination("low", priority=1))
    assert nominations.add(first) == ended == [user("low")]


def test_others_may_have_what_is_not_kept_with_the_node_any_more() -> None:
    former = nomination("mine", claims={"uid-disk": "disk"}, terminating=frozenset({"a"}))
    nominations, ended = made(former, nomination("low", priority=1))
    first = replace(former, terminating=frozenset())
    assert nominations.add(first) == ended == []
    assert nominations.add(replace(first, claims={})) == []
    assert ended == [user("mine")]
    assert nominations.of(user("low").uid) is not None
    nominations.add(replace(first, claims={}, amounts={"cpu": 1}))
    assert ended == [user("mine")] * 2 + [user("low")]


def test_a_pod_that_is_gone_keeps_nothing_and_leaves_nothing() -> None:
    nominations, ended = made(nomination("mine"))
    nominations.evicted(["uid-victim", user("mine").uid])
    assert nominations.is_evicted("uid-victim")
    nominations.pod_gone("uid-victim")
    nominations.pod_gone(user("mine").uid)
    assert not nominations.is_evicted("uid-victim")
    assert ended == [user("mine")]
    nominations.pod_gone(user("mine").uid)
    assert len(ended) == 1
