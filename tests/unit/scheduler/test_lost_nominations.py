"""Nominations by schedulers: those that kube-scheduler 1.37 does not write, because it believes them to be there,
also while its own write that ends one is under way; and those to whose nodes it may be binding the pod."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.support.trouble import TroubleClient
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.builtin import BuiltinClaim
from parley.api.names import CONDITION_ALLOCATED, CONDITION_DECLINED
from parley.api.resources import PODS
from parley.control.objects.mirror import consumer, is_offer, nodes_of, offer_ended
from parley.control.objects.pod import reference
from parley.drivers.device import DeviceDriver
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


@pytest.mark.parametrize("number", [3, 11, 19])
def test_a_named_claim_is_allocated_on_the_node_that_its_pod_is_nominated_for(play: Play, number: int) -> None:
    """It is not offered: other pods may use it. So many nodes that drivers are not asked about all of them."""

    async def scenario(world: World) -> None:
        node = f"n{number:02}"
        for other in range(20):
            await world.add_node(f"n{other:02}", 1)
        await world.add_class()
        await world.add_claim("disk")
        await world.add_pod("p", claims=["disk"], schedulerName="quiet")
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": node})
        world.start_parley()
        await world.settle()
        assert await allocated_on(world, "disk") == [node]

    play(scenario)


async def allocated_on(world: World, name: str) -> list[str]:
    """Where the built-in claim of that name is allocated."""
    found = (claim.status.allocation for claim in await world.mirrors() if claim.metadata.name == name)
    return [node for allocation in found if allocation is not None for node in nodes_of(allocation)]


def test_nothing_is_allocated_elsewhere_while_the_watch_of_pods_is_behind_a_nomination(play: Play) -> None:
    """The scheduler waits for conditions of the claim, and an administrator clears it."""

    async def scenario(world: World) -> None:
        for node in ("a", "b", "c"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_claim("disk")
        await world.add_pod("p", claims=["disk"], schedulerName="quiet")
        client = TroubleClient(world.server.client(), random.Random(1))
        world.start_parley(client)
        await world.settle(5)
        (before,) = await allocated_on(world, "disk")
        client.hold(PODS, 60)
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": before})
        (mirror,) = [claim for claim in await world.mirrors() if claim.metadata.name == "disk"]
        await patch_claim(world.client, mirror, {"allocation": None, "reservedFor": None, "devices": None})
        for _ in range(12):
            await world.settle(10)
            assert await allocated_on(world, "disk") in ([], [before])
        assert await allocated_on(world, "disk") == [before]

    play(scenario)


async def nominated_where_nothing_is_free(world: World) -> None:
    """Pod p is nominated for node a, whose only device claim `taken` has. On node b it would fit if `low` were
    evicted. The controller has just started."""
    for node in ("a", "b"):
        await world.add_node(node, 1)
    await world.add_class()
    await world.add_claim("taken")
    await world.add_claim("disk")
    world.start_parley()
    await world.add_pod("taker", claims=["taken"], nodeSelector={"kubernetes.io/hostname": "a"})
    await world.add_pod("low", nodeName="b", priority=0, containers=requesting(cpu=6))
    await world.settle(10)
    await world.crash()
    needs: Any = {"priority": 10, "containers": requesting(cpu=4), "schedulerName": "quiet"}
    await world.add_pod("p", claims=["disk"], **needs)
    await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "a"})
    world.start_parley()


def test_nobody_is_evicted_elsewhere_while_the_scheduler_may_be_binding_the_pod(play: Play) -> None:
    """Its claim was cleared, and another pod took the device there."""

    async def scenario(world: World) -> None:
        await nominated_where_nothing_is_free(world)
        await world.settle()
        assert await allocated_on(world, "taken") == ["a"]
        assert await allocated_on(world, "disk") == []
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": None})
        await world.settle(10)
        assert await allocated_on(world, "disk") == ["b"]

    play(scenario)


def test_what_is_allocated_slowly_is_undone_if_the_scheduler_chooses_another_node_meanwhile(play: Play) -> None:
    """Its first binding failed, and the reservation that it took back arrived nowhere."""

    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world, placement="Exact")
        driver = ShelfDriver(Behaviour(other=1, trouble=slow(20)))
        world.start_parley(drivers=[driver])
        await world.add_pod("p", "shelf", schedulerName="quiet")
        await world.settle(5)
        (mirror,) = await world.mirrors()
        assert mirror.status.allocation is not None
        assert set(nodes_of(mirror.status.allocation)) == {"a", "b"}
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "a"})
        await patch_claim(world.client, mirror, {"reservedFor": [consumer(reference(await world.pod("p")))]})
        await asyncio.sleep(10)
        assert [node for node, _ in driver.held.values()] == ["a"]
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "b"})
        await asyncio.sleep(11)
        (mirror,) = await world.mirrors()
        assert offer_ended(mirror) == CONDITION_DECLINED
        assert driver.held == {}

    play(scenario)


class Failing(DeviceDriver):
    """Can't allocate on node a, and may be able to later."""

    async def allocate(self, request: Any, node: str) -> Any:
        if node == "a":
            raise RuntimeError("no answer from the device")
        return await super().allocate(request, node)


def test_where_a_driver_fails_on_the_nominated_node_another_is_selected(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_claim("disk")
        await world.add_pod("p", claims=["disk"], schedulerName="quiet")
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "a"})
        world.start_parley(drivers=[Failing()])
        await world.settle()
        assert await allocated_on(world, "disk") == ["b"]

    play(scenario)


def test_a_nomination_that_stays_does_not_keep_a_pod_waiting_for_ever(play: Play) -> None:
    """Its claim can't be allocated on the nominated node."""

    async def scenario(world: World) -> None:
        await nominated_where_nothing_is_free(world)
        await world.settle(60)
        assert await allocated_on(world, "disk") == []
        await asyncio.sleep(3600)
        assert await allocated_on(world, "disk") == ["b"]

    play(scenario)


@pytest.mark.parametrize("number", range(7))
def test_the_nominated_node_is_asked_about_first_also_in_small_rounds(play: Play, number: int) -> None:
    async def scenario(world: World) -> None:
        for other in range(7):
            await world.add_node(f"n{other}", 1)
        await world.add_class()
        await world.add_claim("disk")
        await world.add_pod("p", claims=["disk"], schedulerName="quiet")
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": f"n{number}"})
        world.start_parley(candidates=2)
        await world.settle()
        assert await allocated_on(world, "disk") == [f"n{number}"]

    play(scenario)


@pytest.mark.parametrize("number", [3, 8, 11])
def test_a_standalone_driver_is_asked_about_the_nominated_node_first(play: Play, number: int) -> None:
    async def scenario(world: World) -> None:
        places = {f"n{other:02}": 1 for other in range(12)}
        node = f"n{number:02}"
        for name in places:
            await world.add_node(name, 1)
        await add_shelf_class(world)
        await world.add_claim("disk", "shelf")
        await world.add_pod("p", claims=["disk"], schedulerName="quiet")
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": node})
        world.start_driver(ShelfDriver(Behaviour(places)))
        world.start_parley(candidates=4)
        await world.settle()
        assert await allocated_on(world, "disk") == [node]

    play(scenario)


@pytest.mark.parametrize("cleared", [True, False])
def test_a_standalone_driver_is_not_asked_where_others_are_evicted_while_the_scheduler_may_be_binding(
    play: Play, cleared: bool
) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour({"a": 0, "b": 1})
        for node in behaviour.places:
            await world.add_node(node, 1)
        await add_shelf_class(world)
        await world.add_claim("disk", "shelf")
        await world.add_pod("low", nodeName="b", priority=0, containers=requesting(cpu=6))
        needs: Any = {"priority": 10, "containers": requesting(cpu=4), "schedulerName": "quiet"}
        await world.add_pod("p", claims=["disk"], **needs)
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "a"})
        world.start_driver(ShelfDriver(behaviour))
        world.start_parley()
        await world.settle()
        assert await allocated_on(world, "disk") == []
        if cleared:
            await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": None})
        await asyncio.sleep(30 if cleared else 3600)
        assert await allocated_on(world, "disk") == ["b"]

    play(scenario)


@pytest.mark.parametrize("standalone", [False, True], ids=["embedded", "standalone"])
def test_others_may_be_evicted_on_the_nominated_node(play: Play, standalone: bool) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
            await world.add_pod(f"low-{node}", nodeName=node, priority=0, containers=requesting(cpu=6))
        await world.add_class()
        await add_shelf_class(world)
        await world.add_claim("disk", "shelf" if standalone else "gpu")
        needs: Any = {"priority": 10, "containers": requesting(cpu=4), "schedulerName": "quiet"}
        await world.add_pod("p", claims=["disk"], **needs)
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "b"})
        world.start_driver(ShelfDriver(Behaviour(other=1)))
        world.start_parley()
        await world.settle()
        assert await allocated_on(world, "disk") == ["b"]

    play(scenario)


def test_nobody_is_evicted_elsewhere_for_what_it_holds_while_the_scheduler_may_be_binding_the_pod(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class(preemption="LowerPriority")
        await world.add_template("one")
        await world.add_claim("disk")
        world.start_parley()
        for name, node, priority in ("high", "a", 100), ("low", "b", 0):
            selector = {"kubernetes.io/hostname": node}
            await world.add_pod(name, "one", priority=priority, nodeSelector=selector)
        await world.settle(10)
        await world.crash()
        await world.add_pod("p", claims=["disk"], priority=10, schedulerName="quiet")
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": "a"})
        world.start_parley()
        await world.settle()
        assert await world.node_of("low") == "b"
        await patch_pod(world.client, await world.pod("p"), {"nominatedNodeName": None})
        await world.settle()
        assert await allocated_on(world, "disk") == ["b"]

    play(scenario)
