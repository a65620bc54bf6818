"""A driver leaves the controller for a process of its own, while pods use what it allocated there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import condition
from tests.unit.scheduler.disks import Disks

from parley.api.names import driver_finalizer
from parley.api.resources import (
    BUILTIN_CLAIMS,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    NODES,
    POD_SCHEDULINGS,
    TEMPLATES,
)
from parley.api.resources import PODS as PODS_OF_ALL
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.sdk import Driver
from parley.sdk.standalone import StandaloneDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")

PODS = ("one", "two", "three")


@asynccontextmanager
async def outside(world: World, driver: Driver[Any, Any]) -> AsyncIterator[None]:
    """The driver runs standalone."""
    running = asyncio.create_task(StandaloneDriver(world.server.client(), driver, world.clock).run())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@asynccontextmanager
async def alone(world: World) -> AsyncIterator[TokensDriver]:
    """The tokens' driver, as it runs standalone."""
    tokens = TokensDriver()
    async with outside(world, tokens):
        yield tokens


async def has_pool(world: World, tokens: int) -> None:
    """A node, and a class and a template for so many tokens."""
    await world.add_node("a")
    await world.add_class("pool", driverName=TokensDriver.name, nodePart="None", parameters={"pool": tokens})
    await world.add_template("t", "pool")


async def begin(world: World) -> None:
    """Two of the pods have all the tokens that there are."""
    await has_pool(world, 2)
    world.start_parley(drivers=[TokensDriver()])
    for name in PODS:
        await world.add_pod(name, "t")
        await world.settle()
    assert await bound(world) == ["one", "two"]


async def bound(world: World) -> list[str]:
    return [name for name in PODS if await world.node_of(name)]


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
