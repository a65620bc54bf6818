"""What follows when a driver fails to deallocate: it is asked again, and nothing is allocated twice."""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.faults import FaultClient
from tests.unit.scheduler.failing_drivers import BOTH, Failing, Unsure, with_tokens

from parley.api.resources import BUILTIN_CLAIMS, CLASSES
from parley.kube.client import Call, Invalid

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


@BOTH
def test_a_driver_that_fails_to_give_back_is_asked_again_and_hands_nothing_out_twice(
    play: Any, scheduling_path: str
) -> None:
    async def scenario(world: World) -> None:
        driver = Failing()
        await with_tokens(world, driver)
        await world.add_template("all", "seats", count=3)
        await world.add_pod("p", "all")
        await world.settle()
        driver.failing.add("deallocate")
        await world.delete_pod("p")
        await world.add_pod("q", "all")
        await world.add_pod("r", "one")
        await world.settle(quiet=1.0)
        assert not await world.node_of("q")
        assert await world.node_of("r")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert await world.node_of("q")

    play(scenario)


@BOTH
def test_nobody_comes_to_use_what_a_driver_may_have_given_back(play: Any, scheduling_path: str) -> None:
    async def scenario(world: World) -> None:
        driver = Unsure()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"shareable": True})
        await world.add_claim("team", "seats", count=3)
        await world.add_pod("p", claims=["team"])
        await world.settle()
        driver.failing.add("deallocate")
        await world.delete_pod("p")
        await asyncio.sleep(2)
        await world.add_pod("q", claims=["team"])
        await world.settle(quiet=1.0)
        assert not await world.node_of("q")
        await world.add_pod("r", "seat")
        await world.settle(quiet=1.0)
        assert await world.node_of("r")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert not await world.node_of("q")
        await world.delete_pod("r")
        await world.settle(quiet=400.0)
        assert await world.node_of("q")

    play(scenario)


@BOTH
def test_a_pod_whose_own_allocation_the_driver_fails_to_give_back_is_told_and_gets_another(
    play: Any, scheduling_path: str
) -> None:
    async def scenario(world: World) -> None:
        driver, refused = Unsure("deallocate"), asyncio.Event()

        def refuse(call: Call) -> None:
            recording = call.resource is BUILTIN_CLAIMS and call.verb == "patch" and "status" in (call.body or {})
            if recording and call.body and call.body["status"].get("allocation") and not refused.is_set():
                refused.set()
                raise Invalid(422, "Invalid", "injected")

        for node in ("a", "b"):
            await world.add_node(node)
        await world.add_class("seats", driverName=driver.name, parameters={"pool": 3})
        await world.add_template("seat", "seats", count=3)
        world.start_parley(FaultClient(world.server.client(), before=refuse), drivers=[driver])
        await world.add_pod("p", "seat")
        await world.settle(quiet=1.0)
        (mirror,) = await world.mirrors()
        assert (await world.scheduling("p")).status.message == (
            f"claim default/{mirror.metadata.name} is not free yet: "
            "driver tokens.parley.dev failed in deallocate and is asked again"
        )
        assert not await world.node_of("p")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert await world.node_of("p")

    play(scenario)
