"""When claims are released, and when they are not; what a driver finds when it starts."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.conditions import condition
from tests.unit.sdk.standalone.world import (
    DRIVER,
    NAMESPACE,
    Array,
    ArrayDriver,
    LaggingClient,
    ShelfDriver,
    World,
)

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, POD_SCHEDULINGS
from parley.sdk import Device, Held

Play = Callable[[Callable[[World], Any]], None]

FINALIZER = driver_finalizer(DRIVER)


async def allocated(world: World, driver: Any, claim: str = "disk") -> None:
    """The claim is allocated on node a by a driver that runs."""
    for node in ("a", "b"):
        await world.add_node(node, 2)
    await world.add_class()
    await world.add_claim(claim)
    world.start(driver)
    await world.ask("pod", claim, selected="a")
    await world.settle()
    assert await world.node_of(claim) == "a"


async def reserve(world: World, claim: str, *pods: str) -> None:
    users = [{"resource": "pods", "name": pod, "uid": f"uid-of-{pod}"} for pod in pods]
    body = {"status": {"reservedFor": users or None}}
    await world.client.patch(CLAIMS, claim, body, NAMESPACE, subresource="status")


def test_a_request_takes_the_allocation_back_and_lets_the_claim_go(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = ShelfDriver()
        await allocated(world, driver)
        await world.end("pod")
        await world.take_back("disk")
        await world.settle()

        claim = await world.claim("disk")
        assert claim.metadata.finalizers == ()
        assert claim.metadata.annotations == {}
        assert (claim.status.driver_name, claim.status.allocation) == (None, None)
        assert (claim.status.deallocation_requested, condition(claim, "Allocated").status) == (False, "False")
        assert driver.held == {}

    play(scenario)


def test_a_claim_that_was_taken_back_is_allocated_again_where_it_is_selected_then(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = ShelfDriver()
        await allocated(world, driver)
        await world.select("pod", "b")
        await world.take_back("disk")
        await world.settle()

        assert await world.node_of("disk") == "b"
        assert [node for node, _ in driver.held.values()] == ["b"]

    play(scenario)


@pytest.mark.parametrize("ended", [True, False])
def test_a_claim_is_not_allocated_again_for_a_selection_that_is_over(
    play: Play, array: Array, ended: bool
) -> None:
    """The driver hears of its claim at once, and of the PodScheduling late."""

    async def scenario(world: World) -> None:
        client = LaggingClient(world.server.client())
        client.only = POD_SCHEDULINGS
        await world.add_class()
        await world.add_claim("disk")
        world.start(ArrayDriver(array), client)
        await world.ask("pod", "disk", selected="a")
        await world.settle()
        await (world.end("pod") if ended else world.select("pod", ""))
        await world.take_back("disk")
        await world.settle()

        assert array.calls["allocate"] == 1
        assert array.volumes == {}
        assert (await world.claim("disk")).metadata.finalizers == ()

    play(scenario)


def test_a_deleted_claim_goes_when_its_last_pod_is_gone(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = ShelfDriver()
        await allocated(world, driver)
        await reserve(world, "disk", "pod")
        await world.delete("disk")
        await world.settle()
        assert await world.node_of("disk") == "a"
        assert len(driver.held) == 1
        await reserve(world, "disk")
        await world.settle()

        assert not await world.exists("disk")
        assert driver.held == {}

    play(scenario)


def test_a_claim_whose_finalizers_were_forced_off_is_given_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = ShelfDriver()
        await allocated(world, driver)
        await world.client.patch(CLAIMS, "disk", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.delete("disk")
        await world.add_claim("disk")
        await world.settle()

        assert [node for node, _ in driver.held.values()] == ["a"]
        assert list(driver.held) == [(await world.claim("disk")).metadata.uid]

    play(scenario)


def test_an_allocation_that_somebody_else_cleared_is_given_back_and_made_anew(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await allocated(world, ArrayDriver(array))
        cleared = {"status": {"allocation": None, "driverName": None}}
        await world.client.patch(CLAIMS, "disk", cleared, NAMESPACE, subresource="status")
        await world.settle()

        assert await world.node_of("disk") == "a"
        assert (array.calls["allocate"], array.calls["deallocate"]) == (2, 1)

    play(scenario)


def test_claims_of_other_drivers_are_left_alone(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start(ShelfDriver())
        await world.add_claim("other")
        handle = {"driverName": "gpus.example.com"}
        status = {"driverName": "gpus.example.com", "allocation": {"handles": [handle]}}
        await world.client.patch(CLAIMS, "other", {"status": status}, NAMESPACE, subresource="status")
        await world.take_back("other")
        await world.settle()

        assert (await world.claim("other")).status.deallocation_requested

    play(scenario)


def test_a_claim_that_was_meant_for_the_driver_and_that_another_one_allocated_is_let_go(play: Play) -> None:
    """The controller made it with the driver's finalizer, then its class became the other's."""

    async def scenario(world: World) -> None:
        world.start(ShelfDriver())
        await world.add_claim("other")
        status = {
            "driverName": "gpus.example.com",
            "allocation": {"handles": [{"driverName": "gpus.example.com"}]},
        }
        await world.client.patch(CLAIMS, "other", {"status": status}, NAMESPACE, subresource="status")
        await world.client.patch(CLAIMS, "other", {"metadata": {"finalizers": [FINALIZER]}}, NAMESPACE)
        await world.settle()

        claim = await world.claim("other")
        assert (claim.metadata.finalizers, claim.status.driver_name) == ((), "gpus.example.com")

    play(scenario)


class Leaky(ShelfDriver):
    """Can't deallocate at first."""

    failures = 0

    async def deallocate(self, uid: str) -> None:
        self.failures += 1
        if self.failures < 4:
            raise ConnectionError("the array does not answer")
        await super().deallocate(uid)


def test_giving_back_is_repeated_until_it_works(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = Leaky()
        await allocated(world, driver)
        await world.end("pod")
        await world.take_back("disk")
        await world.settle()

        assert driver.failures == 4
        assert (await world.claim("disk")).status.allocation is None

    play(scenario)


def test_at_start_a_driver_learns_what_it_holds_before_it_answers(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class()
        await world.add_claim("disk")
        await world.add_claim("more")
        await world.ask("pod", "disk", selected="a")
        await world.kill_after_settling(ShelfDriver())
        await world.ask("next", "more", nodes=["a", "b"])
        driver = ShelfDriver()
        world.start(driver)
        await world.settle()

        assert list(driver.held.values()) == [("a", 1)]
        assert (await world.answer("next")).viable_nodes == ("b",)

    play(scenario)


def test_what_is_restored_has_uid_node_devices_and_data(play: Play) -> None:
    restored: list[Held] = []

    class Remembering(ShelfDriver):
        def restore(self, held: Held) -> None:
            restored.append(held)

    async def scenario(world: World) -> None:
        await world.add_claim("one")
        await world.add_claim("everywhere")
        devices = [{"pool": "array-1", "device": "disk-3"}]
        handle = {"driverName": DRIVER, "devices": devices, "data": {"iqn": "x"}}
        field = {"key": "metadata.name", "operator": "In", "values": ["node-2"]}
        where = {"availableOnNodes": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
        for name, more in (("one", where), ("everywhere", {})):
            status = {"driverName": DRIVER, "allocation": {"handles": [handle], **more}}
            await world.client.patch(CLAIMS, name, {"status": status}, NAMESPACE, subresource="status")
        world.start(Remembering())
        await world.settle()
        device = (Device("array-1", "disk-3"),)
        one, everywhere = [(await world.claim(name)).metadata.uid for name in ("one", "everywhere")]
        assert len(restored) == 2
        assert Held(one, "node-2", device, {"iqn": "x"}) in restored
        assert Held(everywhere, None, device, {"iqn": "x"}) in restored

    play(scenario)


def test_after_a_restart_the_allocation_goes_on_where_it_was(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await world.add_class()
        await world.add_claim("disk")
        await world.ask("pod", "disk", selected="a")
        task = world.start(ArrayDriver(array))
        await asyncio.sleep(7)
        await world.kill(task)
        world.start(ArrayDriver(array))
        await world.settle()

        assert await world.node_of("disk") == "a"
        assert (array.calls["allocate"], array.calls["deallocate"]) == (2, 0)
        assert array.faults == []

    play(scenario)


def test_if_another_node_was_selected_meanwhile_the_first_is_given_back(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await world.add_class()
        await world.add_claim("disk")
        await world.ask("pod", "disk", selected="a")
        task = world.start(ArrayDriver(array))
        await asyncio.sleep(7)
        await world.kill(task)
        await world.select("pod", "b")
        world.start(ArrayDriver(array))
        await world.settle()

        assert await world.node_of("disk") == "b"
        assert array.faults == []
        assert {node for node, _ in array.volumes.values()} == {"b"}

    play(scenario)


def test_what_nobody_selects_any_more_after_a_restart_is_given_back(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await world.add_class()
        await world.add_claim("disk")
        await world.ask("pod", "disk", selected="a")
        task = world.start(ArrayDriver(array))
        await asyncio.sleep(7)
        await world.kill(task)
        await world.end("pod")
        world.start(ArrayDriver(array))
        await world.settle()

        claim = await world.claim("disk")
        assert array.volumes == {}
        assert claim.metadata.finalizers == ()
        assert {c.type: c.status for c in claim.status.conditions} == dict.fromkeys(
            ("Allocating", "Allocated", "Ready"), "False"
        )

    play(scenario)


def test_an_allocation_that_an_earlier_process_recorded_late_is_counted(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("late")
        await world.add_claim("disk")
        driver = ShelfDriver()
        world.start(driver)
        await world.settle()
        field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
        where = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        handle = {"driverName": DRIVER, "data": {"size": 1}}
        status = {"driverName": DRIVER, "allocation": {"handles": [handle], "availableOnNodes": where}}
        await world.client.patch(CLAIMS, "late", {"status": status}, NAMESPACE, subresource="status")
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()

        assert list(driver.held.values()) == [("a", 1)]
        assert (await world.answer("pod")).viable_nodes == ()

    play(scenario)


class RestoringDriver(ShelfDriver):
    """Notes what it is to restore."""

    def __init__(self) -> None:
        super().__init__()
        self.restored: list[str] = []

    def restore(self, held: Held) -> None:
        super().restore(held)
        self.restored.append(held.uid)


def test_what_was_released_is_not_restored_by_a_watch_that_is_behind(play: Play) -> None:
    """Somebody writes the claim while it is deallocated, and that is brought when the deallocation is over."""

    async def scenario(world: World) -> None:
        driver, client = RestoringDriver(), LaggingClient(world.server.client())
        client.only = CLAIMS
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("disk")
        await world.client.patch(CLAIMS, "disk", {"metadata": {"finalizers": ["example.com/keeps"]}}, NAMESPACE)
        world.start(driver, client)
        await world.ask("pod", "disk", selected="a")
        await world.settle()
        await world.end("pod")
        await world.settle()
        await world.delete("disk")
        await asyncio.sleep(1)
        await world.client.patch(CLAIMS, "disk", {"metadata": {"labels": {"seen": "yes"}}}, NAMESPACE)
        await world.settle()

        assert driver.held == {}
        assert driver.restored == []

    play(scenario)
