"""What a driver's claims come to if the API server refuses a write about them for good: a policy, or a webhook."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.faults import FaultClient, NumberedCall
from tests.unit.sdk.standalone.world import DRIVER, NAMESPACE, Array, ArrayDriver, ShelfDriver, World, progress

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES
from parley.kube.client import Forbidden, ServerError
from parley.sdk import Held

Play = Callable[[Callable[[World], Any]], None]

FINALIZER = driver_finalizer(DRIVER)


def test_what_was_begun_for_a_class_of_another_driver_is_let_go_though_its_progress_cannot_be_written(
    play: Play, array: Array
) -> None:
    """The policy driver-classes lets a driver write no status of a claim that it has not allocated, once the class
    is another's: not even that nothing is in progress any more."""

    async def scenario(world: World) -> None:
        moved = False

        def policy(call: NumberedCall) -> None:
            if moved and call.resource == CLAIMS and call.subresource == "status":
                raise Forbidden(403, "Forbidden", "class disk has driver theirs.example.com")

        for node in ("a", "b"):
            await world.add_node(node, 2)
        await world.add_class()
        await world.add_claim("disk")
        world.start(ArrayDriver(array), FaultClient(world.server.client(), before=policy))
        await world.ask("pod", "disk", selected="a")
        await asyncio.sleep(5)
        shown = await progress(world, "disk")
        assert shown is not None
        assert shown.status == "True"
        moved = True
        await world.client.patch(CLASSES, "disk", {"driverName": "theirs.example.com"})
        await world.end("pod")
        await world.settle()

        assert array.volumes == {}
        assert (await world.claim("disk")).metadata.finalizers == ()

    play(scenario)


def test_an_allocation_that_may_not_be_cleared_keeps_the_finalizer(play: Play) -> None:
    async def scenario(world: World) -> None:
        refuses = True

        def webhook(call: NumberedCall) -> None:
            status = call.body.get("status", {}) if isinstance(call.body, dict) else {}
            if refuses and call.resource == CLAIMS and "allocation" in status and status["allocation"] is None:
                raise Forbidden(403, "Forbidden", "not now")

        for node in ("a", "b"):
            await world.add_node(node, 2)
        await world.add_class()
        await world.add_claim("disk")
        world.start(ShelfDriver(), FaultClient(world.server.client(), before=webhook))
        await world.ask("pod", "disk", selected="a")
        await world.settle()
        await world.end("pod")
        await world.take_back("disk")
        await world.settle()
        assert (await world.claim("disk")).metadata.finalizers == (FINALIZER,)

        refuses = False
        await world.settle()
        claim = await world.claim("disk")
        assert (claim.metadata.finalizers, claim.status.allocation) == ((), None)

    play(scenario)


class Restoring(ShelfDriver):
    """Notes what it is to restore."""

    def __init__(self) -> None:
        super().__init__()
        self.restored: list[str] = []

    def restore(self, held: Held) -> None:
        super().restore(held)
        self.restored.append(held.uid)


def test_what_was_released_is_not_restored_while_it_cannot_be_cleared(play: Play) -> None:
    """Somebody else writes the deleted claim, also between two attempts, while many claims are to be looked at."""

    async def scenario(world: World) -> None:
        fails = True

        def busy(call: NumberedCall) -> None:
            if fails and call.resource == CLAIMS and "'allocation': None" in str(call.body):
                raise ServerError(500, "InternalError", "failed calling webhook")

        driver = Restoring()
        await world.add_node("a", 1)
        await world.add_class()
        for name in ("disk", *(f"other-{number}" for number in range(400))):
            await world.add_claim(name)
        world.start(driver, FaultClient(world.server.client(), before=busy))
        await world.ask("pod", "disk", selected="a")
        await world.settle()
        assert driver.held
        await world.end("pod")
        await world.delete("disk")
        await asyncio.sleep(60)
        assert not driver.held
        for steps in range(20):
            await world.client.patch(CLASSES, "disk", {"allocationTimeoutSeconds": 9 + steps})  # all are looked at
            for label in ("one", "two"):
                body = {"metadata": {"labels": {"seen": f"{label}-{steps}"}}}
                await world.client.patch(CLAIMS, "disk", body, NAMESPACE)
                for _ in range(steps):
                    await asyncio.sleep(0)
            await asyncio.sleep(60)
        assert driver.restored == []
        assert not driver.held

        fails = False
        await world.settle()
        assert not await world.exists("disk")

    play(scenario)
