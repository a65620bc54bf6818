"""When the soak's rules about bound pods let a pod be bound elsewhere than its device is: only while the offer
stands of which its scheduler gave up the node, because the binding failed or it was restarted."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.cluster.processes import acting_as
from tests.soak.kinds.names import NAMESPACE
from tests.soak.rules.mirrors import Json

from parley.api.resources import BUILTIN_CLAIMS

Play = Callable[[Any], None]
CLAIM = "p-gpu-0"
ELSEWHERE = ["bound elsewhere: pod p, claim 'gpu-0' has a/gpu-0 for a b, bound to b"]


def being_bound(world: Any) -> Json:
    """A pod whose scheduler has chosen node a of two, where a device is allocated."""
    pod: Json = world.pod("p", "offered")
    begin_binding(world, pod)
    return pod


def begin_binding(world: Any, pod: Json) -> None:
    """Two nodes are offered; the pod's scheduler chooses node a, and a device is allocated there."""
    world.offer(CLAIM, ["a", "b"])
    choose(world, pod, "a")
    world.fulfil(CLAIM, "a")


def choose(world: Any, pod: Json, node: str) -> None:
    world.nominate("p", node)
    world.reserve(CLAIM, pod)


def takes_back(world: Any, _pod: Json) -> None:
    world.reserve(CLAIM)
    world.nominate("p", None)
    world.failed("p", "no answer")


def leaves_reservation(world: Any, _pod: Json) -> None:
    world.nominate("p", None)
    world.failed("p", "preempted")


def leaves_nomination(world: Any, _pod: Json) -> None:
    world.failed("p", "preempted")


def is_restarted(world: Any, _pod: Json) -> None:
    world.rules.scheduler_restarted()


GIVES_UP = (takes_back, leaves_reservation, leaves_nomination, is_restarted)


def test_a_pod_is_bound_where_its_device_is(play: Play) -> None:
    async def story(world: Any) -> None:
        world.bind(being_bound(world), "a")

        assert not world.faults

    play(story)


def test_a_pod_that_is_bound_to_another_offered_node_breaks_the_rule(play: Play) -> None:
    async def story(world: Any) -> None:
        world.bind(being_bound(world), "b")

        assert world.faults == ELSEWHERE

    play(story)


@pytest.mark.parametrize("gives_up", GIVES_UP)
def test_a_scheduler_that_gave_up_the_node_may_choose_another_one_of_the_offer(play: Play, gives_up: Any) -> None:
    async def story(world: Any) -> None:
        pod = being_bound(world)
        gives_up(world, pod)
        choose(world, pod, "b")
        world.bind(pod, "b")

        assert not world.faults

    play(story)


def test_also_if_the_binding_fails_as_it_did_before(play: Play) -> None:
    async def story(world: Any) -> None:
        pod = being_bound(world)
        leaves_reservation(world, pod)
        begin_binding(world, pod)
        world.nominate("p", None)  # the condition has that message already: it is not written again
        choose(world, pod, "b")
        world.bind(pod, "b")

        assert not world.faults

    play(story)


@pytest.mark.parametrize("gives_up", GIVES_UP)
def test_the_next_offer_is_judged_again(play: Play, gives_up: Any) -> None:
    async def story(world: Any) -> None:
        pod = being_bound(world)
        gives_up(world, pod)
        begin_binding(world, pod)
        world.bind(pod, "b")

        assert world.faults == ELSEWHERE

    play(story)


def test_a_failed_binding_says_nothing_about_a_claim_that_is_offered_later(play: Play) -> None:
    async def story(world: Any) -> None:
        pod = world.pod("p", "offered")
        world.failed("p", "no claim")
        begin_binding(world, pod)
        world.bind(pod, "b")

        assert world.faults == ELSEWHERE

    play(story)


def test_a_reservation_that_the_claim_controller_dropped_excuses_only_until_it_is_made_again(play: Play) -> None:
    async def story(world: Any) -> None:
        pod = being_bound(world)
        world.reserve(CLAIM, who="claim-controller")
        world.reserve(CLAIM, pod)
        world.reserve(CLAIM, who="controller-1")
        world.bind(pod, "a")

        assert world.faults == ["bound too early: pod p, claim 'gpu-0' (p-gpu-0) is not reserved for the pod"]

    play(story)


def test_a_reservation_that_the_claim_controller_dropped_may_be_missing(play: Play) -> None:
    async def story(world: Any) -> None:
        pod = being_bound(world)
        world.reserve(CLAIM, who="claim-controller")
        world.bind(pod, "a")

        assert not world.faults

    play(story)


@pytest.mark.parametrize("fails", [False, True], ids=["goes on", "has failed"])
def test_a_binding_may_go_on_although_its_offer_was_cleared_and_something_else_allocated(
    play: Play, fails: bool
) -> None:
    """The scheduler's watch is behind: it sees neither that the offer was cleared, nor where the device is now."""

    async def story(world: Any) -> None:
        pod = being_bound(world)
        world.clear(CLAIM, "meddler")
        if fails:
            world.failed("p", "the claim is not allocated")
        world.allocate(CLAIM, "a", pod)
        world.bind(pod, "b")

        assert [fault.split(":")[0] for fault in world.faults] == ["bound elsewhere"] * fails

    play(story)


@pytest.mark.parametrize("deleted", [False, True], ids=["complete", "one deleted"])
def test_a_claim_may_be_released_during_a_binding_because_somebody_deleted_another_one(
    play: Play, deleted: bool
) -> None:
    async def story(world: Any) -> None:
        pod = world.pod("p", "pair")
        world.allocate("p-gpu-0", "a", pod)
        world.allocate("p-gpu-1", "a", pod, device="gpu-1")
        if deleted:
            with acting_as("meddler"):
                world.server.delete(BUILTIN_CLAIMS, "p-gpu-1", NAMESPACE)
        world.clear("p-gpu-0")
        world.bind(pod, "a")

        assert [fault.split(":")[0] for fault in world.faults] == ["bound too early"] * (not deleted)

    play(story)


@pytest.mark.parametrize("who", ["meddler", "controller"])
def test_a_binding_may_go_on_although_another_of_the_pods_offers_was_cleared(play: Play, who: str) -> None:
    """Parley takes back the offers that are left, and the scheduler takes the next allocation for them."""

    async def story(world: Any) -> None:
        pod, claims = world.pod("p", "offered-pair"), ("p-gpu-0", "p-gpu-1")
        for name in claims:
            world.offer(name, ["a", "b"])
        world.nominate("p", "a")
        for name in claims:
            world.reserve(name, pod)
        world.clear("p-gpu-1", who)
        for name, device in zip(claims, ("gpu-0", "gpu-1"), strict=True):
            world.clear(name)
            world.allocate(name, "b", pod, device)
        world.bind(pod, "a")

        assert [fault.split(":")[0] for fault in world.faults] == ["bound elsewhere"] * 2 * (who != "meddler")

    play(story)
