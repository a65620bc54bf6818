"""A driver comes back into the controller, and what it left there when it moved out."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import condition
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.moved import alone, begin, bound, has_pool, outside

from parley.api.names import driver_finalizer
from parley.api.resources import (
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    NODES,
)
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_back_in_the_controller_it_counts_them_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.crash()
        world.start_parley(drivers=[])
        await asyncio.sleep(60)
        await world.crash()
        world.start_parley(drivers=[TokensDriver()])
        await asyncio.sleep(60)
        assert await bound(world) == ["one", "two"]
        await world.delete_pod("one")
        await asyncio.sleep(60)
        assert await world.node_of("three") == "a"

    play(scenario)


@pytest.mark.parametrize("kind", ["named", "generated"])
def test_in_the_controller_it_lets_claims_go_that_it_had_marked_when_it_was_alone(play: Play, kind: str) -> None:
    """Otherwise they would never go, nor would their namespace."""

    async def scenario(world: World) -> None:
        await has_pool(world, 1)
        world.start_parley(drivers=[])
        async with alone(world):
            if kind == "named":
                await world.add_claim("mine", "pool")
                await world.add_pod("one", claims=["mine"])
            else:
                await world.add_pod("one", "t")
            await asyncio.sleep(60)
            assert await world.node_of("one")
        (claim,) = (await world.client.list(CLAIMS)).items
        assert driver_finalizer(TokensDriver.name) in claim.metadata.finalizers
        await world.crash()
        tokens = TokensDriver()
        world.start_parley(drivers=[tokens])
        await world.client.delete(CLAIMS, claim.metadata.name, "default")
        await asyncio.sleep(60)
        assert len(tokens._held) == 1
        await world.delete_pod("one")
        await asyncio.sleep(60)
        assert not (await world.client.list(CLAIMS)).items
        assert not tokens._held

    play(scenario)


def test_in_the_controller_it_takes_back_what_it_had_begun_alone_and_not_recorded(play: Play) -> None:
    async def scenario(world: World) -> None:
        await has_pool(world, 1)
        await world.add_claim("mine", "pool")
        marks = {"metadata": {"finalizers": [driver_finalizer(TokensDriver.name)]}}
        await world.client.patch(CLAIMS, "mine", marks, "default")
        taken_back: list[str] = []

        class Tokens(TokensDriver):
            async def deallocate(self, uid: str) -> None:
                taken_back.append(uid)
                await super().deallocate(uid)

        world.start_parley(drivers=[Tokens()])
        await asyncio.sleep(60)
        uid = (await world.claim("mine")).metadata.uid
        assert taken_back == []
        await world.client.delete(CLAIMS, "mine", "default")
        await asyncio.sleep(60)
        assert taken_back == [uid]
        assert not (await world.client.list(CLAIMS)).items

    play(scenario)


def test_a_claim_that_waited_for_its_node_when_its_driver_left_is_ready_with_its_next_pod(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley()
        await world.add_claim("disk")
        await world.add_pod("first", claims=["disk"])
        await world.settle()
        world.kubelets.stop("a")
        await world.force_delete("first")
        await world.settle()
        assert condition(await world.claim("disk"), "Releasing").status == "True"
        await world.crash()
        world.start_parley(drivers=[])
        world.start_driver(DeviceDriver())
        world.kubelets.start("a")
        await world.settle()
        await world.add_pod("second", claims=["disk"])
        await world.settle()
        assert (await world.pod("second")).status.phase == "Running"
        conditions = {one.type: one.status for one in (await world.claim("disk")).status.conditions}
        assert conditions == {"Accepted": "True", "Allocated": "True", "Ready": "True"}

    play(scenario)


def test_what_a_node_owes_for_a_pod_that_was_deleted_by_force_before_is_asked_for_in_the_end(play: Play) -> None:
    """While others used the claim, the node was not to answer."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class(shareable=True)
        await world.add_claim("disk")
        world.start_parley()
        for name in ("one", "two"):
            await world.add_pod(name, claims=["disk"])
            await world.settle()
            assert await world.node_of(name) == "a"
        await world.force_delete("one")
        await world.settle()
        (release,) = (await world.client.list(CLAIM_RELEASES)).items
        assert not release.status.allocation_cleared
        await world.crash()
        world.start_parley(drivers=[])
        async with outside(world, DeviceDriver()):
            await world.settle()
            await world.delete_pod("two")
            await world.settle()
            assert (await world.claim("disk")).status.allocation is None
            assert not (await world.client.list(CLAIM_RELEASES)).items

    play(scenario)


def test_the_former_drivers_answer_is_not_in_the_way_of_the_new_ones(play: Play) -> None:
    """The new one proposes a node first, and has nothing to propose once it is asked about that."""

    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await world.add_class()
        await world.add_template()
        world.start_parley()
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == ""
        world.start_driver(Disks("b"))
        await world.client.patch(CLASSES, "gpu", {"driverName": Disks.name})
        await world.settle()
        assert await world.node_of("p") == ""
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": False}})
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)
