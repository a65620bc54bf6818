"""A driver leaves the controller for a process of its own, while pods use what it allocated there."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import condition
from tests.unit.scheduler.moved import PODS, alone, begin, bound, has_pool, outside

from parley.api.resources import (
    BUILTIN_CLAIMS,
    CLASSES,
    POD_SCHEDULINGS,
    TEMPLATES,
)
from parley.api.resources import PODS as PODS_OF_ALL
from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_it_is_asked_about_no_pod_until_what_it_allocated_there_has_ended(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.crash()
        world.start_parley(drivers=[])
        async with alone(world) as tokens:
            await asyncio.sleep(120)
            assert await bound(world) == ["one", "two"]
            status = (await world.scheduling("three")).status
            assert status.waiting_for == "DriverMoved"
            names = [
                f"default/{(await world.pod(name)).status.resource_claim_statuses[0].resource_claim_name}"
                for name in ("one", "two")
            ]
            claims = f"2 generated claims inside the controller ({', '.join(names)})"
            assert status.message == (
                f"driver tokens.parley.dev allocated {claims}, where it does not run any more, and does not know "
                "of them: wait until the pods that use them have ended, delete these, or run the driver in the "
                "controller again"
            )
            (ready,) = (await world.client.get(CLASSES, "pool")).status.conditions
            assert (ready.status, ready.reason) == ("False", "DriverMoved")

            await world.delete_pod("one")
            await asyncio.sleep(60)
            assert not await world.node_of("three")
            await world.delete_pod("two")
            await asyncio.sleep(60)
            assert await world.node_of("three") == "a"
            assert len(tokens._held) == 1

    play(scenario)


def test_it_is_asked_again_when_claims_that_lost_their_pods_are_deleted(play: Play) -> None:
    """`kubectl delete --cascade=orphan` leaves them behind, without an owner."""

    async def scenario(world: World) -> None:
        await begin(world)
        await world.crash()
        world.start_parley(drivers=[])
        async with alone(world):
            await asyncio.sleep(10)
            for name in ("one", "two"):
                await world.client.delete(PODS_OF_ALL, name, "default", propagation_policy="Orphan")
            await asyncio.sleep(60)
            for mirror in await world.mirrors():
                if not mirror.metadata.owner_references:
                    await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, "default")
            await asyncio.sleep(60)
            assert await world.node_of("three") == "a"

    play(scenario)


def test_a_pod_of_another_namespace_is_not_told_the_names_of_these_claims(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.crash()
        world.start_parley(drivers=[])
        body = {"metadata": {"name": "t"}, "spec": {"spec": {"resourceClassName": "pool"}}}
        await world.client.create(TEMPLATES, body, "other")
        entries = [{"name": "c", "resourceClaimTemplateName": "t"}]
        used = [{"name": "main", "image": "none", "resources": {"claims": [{"name": "c"}]}}]
        scheduler = {"schedulerName": "parley"} if world.scheduling_path == "extender" else {}
        spec = {"resourceClaims": entries, "containers": used, **scheduler}
        await world.client.create(PODS_OF_ALL, {"metadata": {"name": "p"}, "spec": spec}, "other")
        async with alone(world):
            await asyncio.sleep(120)
            status = (await world.client.get(POD_SCHEDULINGS, "p", "other")).status
            assert status.waiting_for == "DriverMoved"
            assert status.message == (
                "driver tokens.parley.dev allocated 2 generated claims inside the controller "
                "(2 in other namespaces), where it does not run any more, and does not know of them: wait until "
                "the pods that use them have ended, delete these, or run the driver in the controller again"
            )

    play(scenario)


def test_what_it_allocates_alone_keeps_nobody_from_it_after_a_restart(play: Play) -> None:
    async def scenario(world: World) -> None:
        await has_pool(world, 2)
        world.start_parley(drivers=[])
        async with alone(world):
            await world.add_pod("one", "t")
            await asyncio.sleep(60)
            await world.crash()
            world.start_parley(drivers=[])
            await world.add_pod("two", "t")
            await asyncio.sleep(60)
            assert [name for name in ("one", "two") if await world.node_of(name)] == ["one", "two"]

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_built_in_claim_that_is_recreated_keeps_nobody_from_it(play: Play, *, restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await has_pool(world, 2)
        world.start_parley(drivers=[])
        async with alone(world) as tokens:
            await world.add_pod("one", "t")
            await asyncio.sleep(60)
            (mirror,) = await world.mirrors()
            await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, "default")
            await asyncio.sleep(60)
            await world.change_pod("one")
            await asyncio.sleep(60)
            (again,) = await world.mirrors()
            assert again.metadata.uid != mirror.metadata.uid
            assert again.status.allocation is not None
            if restarted:
                await world.crash()
                world.start_parley(drivers=[])
            await world.add_pod("two", "t")
            await asyncio.sleep(60)
            assert [name for name in ("one", "two") if await world.node_of(name)] == ["one", "two"]
            (ready,) = (await world.client.get(CLASSES, "pool")).status.conditions
            assert ready.status == "True"
            assert len(tokens._held) == 2

    play(scenario)


def test_the_claim_of_a_pod_that_has_ended_keeps_nobody_from_it_after_a_restart(play: Play) -> None:
    """Another controller's finalizer holds the built-in claim; the stand-in is gone, and the token is free."""

    async def scenario(world: World) -> None:
        await has_pool(world, 2)
        world.start_parley(drivers=[])
        async with alone(world) as tokens:
            await world.add_pod("one", "t")
            await asyncio.sleep(60)
            await held_by_another_controller(world)
            await world.delete_pod("one")
            await asyncio.sleep(60)
            assert not tokens._held
            await world.crash()
            world.start_parley(drivers=[])
            await world.add_pod("two", "t")
            await asyncio.sleep(60)
            assert await world.node_of("two") == "a"

    play(scenario)


def test_it_is_asked_again_when_finalizers_alone_hold_what_it_allocated_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await held_by_another_controller(world)
        await world.crash()
        world.start_parley(drivers=[])
        async with alone(world):
            await asyncio.sleep(60)
            assert await bound(world) == ["one", "two"]
            for name in ("one", "two"):
                await world.delete_pod(name)
            await asyncio.sleep(60)
            assert await world.node_of("three") == "a"

    play(scenario)


async def held_by_another_controller(world: World) -> None:
    """Finalizers of another controller hold the built-in claims."""
    for mirror in await world.mirrors():
        held = {"metadata": {"finalizers": [*mirror.metadata.finalizers, "example.com/backup"]}}
        await world.client.patch(BUILTIN_CLAIMS, mirror.metadata.name, held, "default")


def test_it_allocates_no_immediate_claim_until_what_it_allocated_there_has_ended(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await asyncio.sleep(30)
        async with alone(world) as tokens:
            await world.add_claim("licence", "pool", mode="Immediate")
            await asyncio.sleep(5)
            await world.crash()
            await asyncio.sleep(30)
            assert not tokens._held
            world.start_parley(drivers=[])
            await asyncio.sleep(60)
            assert not tokens._held
            allocated = condition(await world.claim("licence"), "Allocated")
            assert (allocated.status, allocated.reason) == ("False", "DriverMoved")

            for pod in PODS[:2]:
                await world.delete_pod(pod)
            await asyncio.sleep(60)
            assert condition(await world.claim("licence"), "Allocated").status == "True"

    play(scenario)


def test_neither_does_it_allocate_one_of_a_class_that_the_controller_has_not_looked_at(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(drivers=[DeviceDriver()])
        await world.add_pod("p", "one")
        await asyncio.sleep(30)
        assert await world.node_of("p") == "a"
        await world.crash()
        async with outside(world, DeviceDriver()):
            await world.add_class("new")
            await world.add_claim("mine", "new", mode="Immediate")
            await asyncio.sleep(30)
            assert (await world.claim("mine")).status.allocation is None
            world.start_parley(drivers=[])
            await asyncio.sleep(60)
            allocated = condition(await world.claim("mine"), "Allocated")
            assert (allocated.status, allocated.reason) == ("False", "DriverMoved")
            assert set((await world.devices()).values()) == {1}

            await world.delete_pod("p")
            await asyncio.sleep(60)
            assert condition(await world.claim("mine"), "Allocated").status == "True"

    play(scenario)
