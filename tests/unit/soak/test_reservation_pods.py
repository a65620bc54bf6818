"""What the soak finds about reserved room at rest: what reservation pods hold, and who is served beside it."""

from collections.abc import Sequence
from typing import Any

import msgspec
from tests.soak.kinds import pods
from tests.soak.rules.mirrors import Json, Record
from tests.soak.rules.reservations import HOME, ON_A_NODE, RESERVED, RESOURCE, Room, not_held
from tests.unit.soak.reserving import Play, Reserving

from parley.simulate.anti_affinity import Pod


def holding(claim: Json, amount: int, node: str = "a") -> Json:
    """A reservation pod."""
    requests = {"requests": {RESOURCE: str(amount)}}
    meta = {"namespace": HOME, "labels": {"parley.dev/reserved-claim": claim["metadata"]["uid"]}}
    spec = {"containers": [{"resources": requests}]}
    return {"metadata": meta, "spec": spec, "status": {"nominatedNodeName": node}}


def at_rest(world: Any, hold: str = "Nominated") -> Json:
    """A claim whose room reservation pods hold."""
    return Reserving(world).allocate("disk", hold=hold)


def found(*args: Any) -> list[str]:
    return list(not_held(*args))


def test_reservation_pods_hold_what_is_reserved(play: Play) -> None:
    async def story(world: Any) -> None:
        claim = at_rest(world)
        uid = claim["metadata"]["uid"]

        assert found([claim], [holding(claim, 3)], ["a"], frozenset(), None) == []
        nothing = f"nothing holds 3 on node 'a' for claim {uid}"
        assert found([claim], [], ["a"], frozenset(), None) == [nothing]
        less = f"a pod holds 2 on node 'a' for claim {uid}"
        assert found([claim], [holding(claim, 2)], ["a"], frozenset(), None) == [nothing, less]
        other = f"a pod holds 3 on node '' for claim {uid}"
        assert found([claim], [holding(claim, 3, "")], ["a"], frozenset(), None) == [nothing, other]
        twice = f"a pod holds 3 on node 'a' for claim {uid}"
        assert found([claim], [holding(claim, 3)] * 2, ["a"], frozenset(), None) == [twice]
        assert found([], [holding(claim, 3)], ["a"], frozenset(), None) == [twice]

    play(story)


def test_they_hold_nothing_else(play: Play) -> None:
    """Not what is held by Parley alone, nor where the node is gone; what was forced away may be held still."""

    async def story(world: Any) -> None:
        claim = at_rest(world, "Ledger")

        assert found([claim], [], ["a"], frozenset(), None) == []
        assert len(found([claim], [holding(claim, 3)], ["a"], frozenset(), None)) == 1

    async def without_node(world: Any) -> None:
        claim = at_rest(world)

        assert found([claim], [], ["b"], frozenset(), None) == []
        assert found([], [holding(claim, 3)], ["a"], frozenset([claim["metadata"]["uid"]]), None) == []

    play(story)
    play(without_node)


def a_pod(name: str, kind: str, node: str = "") -> Pod:
    """As the judge of a world at rest reads it."""
    body = pods.pod(name, kind, node=node)
    return msgspec.convert({**body, "metadata": {**body["metadata"], "uid": name}}, Pod)


def allocated(pod: str, node: str) -> Record:
    """A built-in claim of the pod that is allocated on the node."""
    return Record(pod, ("", ""), (pod, ""), True, (pod,), True, True, (node,), (), False, False, "", 0, "", "")


def room(claims: Sequence[Json], *there: Pod, records: Sequence[Record] = ()) -> Room:
    return Room(claims, (), there, records)


def test_beside_borrowers_they_hold_what_these_leave(play: Play) -> None:
    async def story(world: Any) -> None:
        claim = at_rest(world)
        guest = a_pod("guest", "guest", "a")
        judged = room([claim], guest, records=(allocated("guest", "a"),))

        assert found([claim], [holding(claim, 1)], ["a"], frozenset(), judged) == []
        for amount in (0, 2, 3):
            held = [holding(claim, amount)] if amount else []
            told = f"{amount} is held on node 'a', not 1 to 1 of 3"
            assert found([claim], held, ["a"], frozenset(), judged) == [told]

    play(story)


def test_it_is_not_known_whose_room_a_borrower_has_whose_claims_are_not_allocated_there(play: Play) -> None:
    async def story(world: Any) -> None:
        claim = at_rest(world)
        judged = room([claim], a_pod("guest", "guest", "a"))

        for amount in (1, 2, 3):
            assert found([claim], [holding(claim, amount)], ["a"], frozenset(), judged) == []
        assert len(found([claim], [], ["a"], frozenset(), judged)) == 1

    play(story)


def test_beside_borrowers_too_nothing_is_held_for_a_claim_that_is_gone(play: Play) -> None:
    async def story(world: Any) -> None:
        claim = at_rest(world)
        uid = claim["metadata"]["uid"]
        judged = room([], a_pod("guest", "guest", "a"), records=(allocated("guest", "a"),))

        gone = f"a pod holds room on node 'a' for claim {uid}, which is gone"
        more = "3 is held on node 'a', not 0 to 0 of 0"
        assert found([], [holding(claim, 3)], ["a"], frozenset(), judged) == [gone, more]
        assert found([], [holding(claim, 3)], ["a"], frozenset([uid]), judged) == []

    play(story)


def test_a_pod_is_served_where_there_is_room_beside_what_is_reserved(play: Play) -> None:
    async def story(world: Any) -> None:
        claim = at_rest(world)
        free, full = room([claim]), room([claim], a_pod("first", "other", "a"))
        waits, borrower = a_pod("p", "other"), a_pod("q", "guest")

        assert (ON_A_NODE, RESERVED["disk"], RESERVED["tape"]) == (4, 3, 2)
        assert [free.serves(waits, (), "a"), full.serves(waits, (), "a")] == [True, False]
        assert full.serves(waits, (), "b")
        assert full.serves(borrower, (), "a")
        assert [free.serves(waits, ["tape"], node) for node in ("a", "b")] == [False, True]
        assert free.serves(waits, ["disk"], "a")  # which it may have allocated anew

    play(story)


def test_a_claim_without_a_pod_is_served_where_nobody_else_has_or_reserves_what_it_reserves(play: Play) -> None:
    async def story(world: Any) -> None:
        claim = at_rest(world)
        judged = room([claim], a_pod("large", "other-large", "b"))

        assert [judged.serves(None, ["tape"], node) for node in ("a", "b", "c")] == [False, False, True]
        assert [judged.serves(None, ["standing"], node) for node in ("a", "b")] == [True, True]

    play(story)


def test_what_a_claim_that_was_forced_away_reserved_may_be_reserved_still(play: Play) -> None:
    async def story(_world: Any) -> None:
        judged = Room([], [("disk", "a")], (), ())

        assert not judged.serves(a_pod("p", "other-large"), (), "a")
        assert judged.serves(a_pod("p", "other"), (), "a")

    play(story)
