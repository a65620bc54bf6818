"""What the soak's rules about reserved room find, and what they let pass: ended claims, borrowers, pods that asked
nobody, and where nothing is left of what is reserved."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.soak.cluster.processes import acting_as
from tests.soak.kinds import pods
from tests.soak.kinds.claims import claim
from tests.soak.kinds.names import NAMESPACE
from tests.soak.rules.mirrors import Json, Record
from tests.soak.rules.reservations import HOME, ON_A_NODE, RESERVED, RESOURCE, Reservations, Room, not_held

from parley.api.resources import CLAIM_RELEASES, CLAIMS, PODS
from parley.api.selectors import node_selector
from parley.simulate.anti_affinity import Pod

Play = Callable[[Any], None]
CONTROLLER = "controller-1"
TWICE = "reserved twice: claim tape reserves 2 on node a: 5 in all"
TAKEN = "room taken: pod p is bound to a, where 3 is reserved and pods have 3 beside 0 of borrowers"


class Reserving:
    """Claims that reserve room on nodes, and pods that request it."""

    def __init__(self, world: Any) -> None:
        self.world = world
        world.observe = Reservations(world.rules.fault).observe
        for name in ("disk", "tape"):
            world.create(CLAIMS, claim(name))

    def body(self, name: str) -> Json:
        found: Json = self.world.body(CLAIMS, name)
        return found

    def allocate(self, name: str, node: str = "a", hold: str = "Ledger") -> Json:
        """Parley allocates the claim on the node."""
        allocation = {
            "handles": [{"driverName": "device.parley.dev", "data": {}, "devices": []}],
            "availableOnNodes": node_selector([node]),
            "reserve": {"amounts": {RESOURCE: str(RESERVED[name])}, "hold": hold},
        }
        status = {"driverName": "device.parley.dev", "allocation": allocation}
        found: Json = self.world.status(CLAIMS, name, status, CONTROLLER)
        return found

    def clear(self, name: str) -> None:
        self.world.status(CLAIMS, name, {"driverName": None, "allocation": None}, CONTROLLER)

    def begins_to_end(self, name: str) -> None:
        """The claim says that only its data is left."""
        condition = {"type": "Releasing", "status": "True", "reason": "RemovingData", "message": "b"}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        self.world.status(CLAIMS, name, {"conditions": [condition]}, CONTROLLER)

    def ask_node(self, name: str, *, remove_data: bool) -> None:
        """A ClaimRelease asks the node for a receipt, or to remove the claim's data."""
        meta, allocation = self.body(name)["metadata"], self.body(name)["status"]["allocation"]
        spec = {
            "claim": {"namespace": NAMESPACE, "name": name, "uid": f"built-in {name}"},
            "nodeName": "a",
            "driverName": "device.parley.dev",
            "holdingUid": meta["uid"],
            "allocation": allocation,
            **({"removeData": True} if remove_data else {}),
        }
        self.world.create(CLAIM_RELEASES, {"metadata": {"name": name}, "spec": spec}, CONTROLLER)

    def answer(self, name: str) -> None:
        with acting_as("plugin"):
            self.world.server.delete(CLAIM_RELEASES, name, None)

    def pod(self, name: str, kind: str, **spec: Any) -> Json:
        found: Json = self.world.pod(name, kind, **spec)
        return found

    def bound(self, name: str, kind: str) -> Json:
        """A pod that its scheduler binds to node a."""
        pod = self.pod(name, kind)
        self.world.bind(pod, "a")
        return pod

    def end(self, name: str) -> None:
        self.world.status(PODS, name, {"phase": "Succeeded"}, "kubelet")


def test_claims_that_reserve_more_than_there_is_are_found(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        assert not world.faults
        reserving.allocate("tape")

        assert world.faults == [TWICE]

    play(story)


def elsewhere(reserving: Reserving) -> None:
    reserving.clear("disk")
    reserving.allocate("disk", "b")


def is_gone(reserving: Reserving) -> None:
    reserving.world.server.delete(CLAIMS, "disk", NAMESPACE)


def is_cleared(reserving: Reserving) -> None:
    reserving.clear("disk")


def says_that_only_data_is_left(reserving: Reserving) -> None:
    reserving.begins_to_end("disk")


def has_data_to_be_removed(reserving: Reserving) -> None:
    reserving.ask_node("disk", remove_data=True)


def says_so_later(reserving: Reserving) -> None:
    """Its record is written again before that."""
    reserving.ask_node("disk", remove_data=True)
    reserving.world.status(CLAIMS, "disk", {"reservedFor": []}, CONTROLLER)


def node_was_faster(reserving: Reserving) -> None:
    """It has answered before the record is cleared."""
    reserving.ask_node("disk", remove_data=True)
    reserving.answer("disk")


@pytest.mark.parametrize(
    "ends",
    [
        elsewhere,
        is_gone,
        is_cleared,
        says_that_only_data_is_left,
        has_data_to_be_removed,
        says_so_later,
        node_was_faster,
    ],
)
def test_a_claim_that_is_elsewhere_or_has_ended_reserves_nothing(
    play: Play, ends: Callable[[Reserving], None]
) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        ends(reserving)
        reserving.allocate("tape")

        assert not world.faults

    play(story)


def test_one_that_waits_for_a_receipt_does(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.ask_node("disk", remove_data=False)
        reserving.allocate("tape")

        assert world.faults == [TWICE]

    play(story)


def test_and_one_that_is_allocated_again_after_it_ended(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.ask_node("disk", remove_data=True)
        reserving.answer("disk")
        reserving.clear("disk")
        reserving.allocate("disk")
        reserving.allocate("tape")

        assert world.faults == [TWICE]

    play(story)


def test_a_pod_in_the_room_of_others_is_found(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.bound("p", "other-large")

        assert world.faults == [TAKEN]

    play(story)


def test_not_one_that_fits_beside_it(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.bound("p", "other")

        assert not world.faults

    play(story)


def test_nor_one_on_a_node_that_others_have_left(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.bound("first", "other")
        reserving.end("first")
        reserving.bound("p", "other")

        assert not world.faults

    play(story)


def test_pods_to_which_the_room_yields_may_be_in_it(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.bound("first", "guest")
        reserving.bound("second", "guest")

        assert not world.faults

    play(story)


def test_others_may_not_be_in_what_these_leave(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.bound("guest", "guest")
        reserving.bound("p", "other-large")

        assert world.faults == [TAKEN.replace("0 of borrowers", "2 of borrowers")]

    play(story)


def test_where_they_leave_nothing_schedulers_may_take_the_same_room_as_anywhere(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.bound("guest", "guest")
        reserving.bound("guest-2", "guest")
        reserving.bound("p", "other-large")

        assert not world.faults

    play(story)


def test_a_pod_that_its_creator_has_put_there_has_asked_nobody(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.allocate("disk")
        reserving.pod("p", "other-large", nodeName="a")
        reserving.world.status(PODS, "p", {"phase": "Running"}, "kubelet")

        assert not world.faults

    play(story)


def test_nor_has_one_that_was_there_before_the_room_was_reserved(play: Play) -> None:
    async def story(world: Any) -> None:
        reserving = Reserving(world)
        reserving.bound("p", "other-large")
        reserving.allocate("disk")
        reserving.world.status(PODS, "p", {"phase": "Running"}, "kubelet")

        assert not world.faults

    play(story)


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
