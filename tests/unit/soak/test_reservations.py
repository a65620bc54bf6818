"""What the soak's rules about reserved room find, and what they let pass: ended claims, borrowers, pods that asked
nobody, and where nothing is left of what is reserved."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.kinds.names import NAMESPACE
from tests.unit.soak.reserving import CONTROLLER, Play, Reserving

from parley.api.resources import CLAIMS, PODS

TWICE = "reserved twice: claim tape reserves 2 on node a: 5 in all"
TAKEN = "room taken: pod p is bound to a, where 3 is reserved and pods have 3 beside 0 of borrowers"


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
