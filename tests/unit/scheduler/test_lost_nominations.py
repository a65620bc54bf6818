"""A scheduler that reserved an offer and does not say where it wants the pod: kube-scheduler 1.37 does not write a
nomination that it believes to be there, also while its own write that ends it is under way."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.builtin import BuiltinClaim
from parley.api.names import CONDITION_ALLOCATED, CONDITION_DECLINED
from parley.control.objects.mirror import consumer, is_offer, offer_ended
from parley.control.objects.pod import reference
from parley.scheduler.attempts import CHOICE_SECONDS
from parley.simulate.status_writes import patch_claim, patch_pod

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


async def reserved(world: World, nodes: Sequence[str]) -> BuiltinClaim:
    """The mirror of a pod that was offered these nodes, once its scheduler, which is the test, has reserved it."""
    for node in nodes:
        await world.add_node(node, 1)
    await world.add_class(placement="Exact")
    await world.add_template("one")
    world.start_parley()
    await world.add_pod("p", "one", schedulerName="quiet")
    await world.settle()
    (mirror,) = await world.mirrors()
    assert mirror.status.allocation is not None
    users = {"reservedFor": [consumer(reference(await world.pod("p")))]}
    return await patch_claim(world.client, mirror, users)


def test_of_one_node_nothing_needs_to_be_said(play: Play) -> None:
    async def scenario(world: World) -> None:
        await reserved(world, ["a"])
        await world.settle(2)
        (mirror,) = await world.mirrors()
        assert offer_ended(mirror) == CONDITION_ALLOCATED

    play(scenario)


@pytest.mark.parametrize("names_it_late", [False, True])
def test_of_several_it_has_to_choose_again_if_it_names_none_in_time(play: Play, names_it_late: bool) -> None:
    async def scenario(world: World) -> None:
        await reserved(world, ["a", "b"])
        await world.settle(CHOICE_SECONDS - 2)
        (mirror,) = await world.mirrors()
        assert offer_ended(mirror) == ""
        if names_it_late:
            await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "b"})
        await world.settle(4)
        (mirror,) = await world.mirrors()
        assert offer_ended(mirror) == (CONDITION_ALLOCATED if names_it_late else CONDITION_DECLINED)

    play(scenario)


def test_a_pod_that_its_scheduler_may_be_binding_still_is_offered_what_was_cleared(play: Play) -> None:
    """It waits for conditions of a claim that somebody has cleared, and would bind the pod to the node that it had
    chosen as soon as the claim is allocated without any, wherever that is."""

    async def scenario(world: World) -> None:
        await world.add_node("b", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("p", "one", schedulerName="quiet")
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "a"})
        world.start_parley()
        await world.settle()
        (mirror,) = await world.mirrors()
        assert mirror.status.allocation is not None
        assert is_offer(mirror.status.allocation)
        assert not await world.devices()

    play(scenario)
