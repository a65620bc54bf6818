"""What is found about pods whose claims are allocated, that are bound, or that have ended."""

import asyncio

from tests.unit.explain.conftest import Play, explained, text_of
from tests.unit.explain.waiting_pods import one_runs
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class


def test_a_pod_that_somebody_put_on_a_node_says_what_it_lacks_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_claim("c")
        await world.settle()
        await world.add_pod("template", "one", nodeName="a")
        await world.add_pod("absent", "one", nodeName="b")
        await world.settle()
        told = await explained(world, "template")
        assert (told.state, told.code) == ("bound", "NothingViable")
        assert "node a: claim gpu-0: 0 of 1 device free, 1 wanted" in told.message
        assert "bound to a" in text_of(told).partition("\n")[0]
        assert text_of(told).partition("\n")[0].endswith(", pending: NothingViable")
        assert "node b: does not exist" in (await explained(world, "absent")).message

        await world.delete_pod("runs")
        await world.settle()
        told = await explained(world, "template")
        assert (told.state, told.code, told.message) == ("bound", "", "")

        await world.publish("a", ["gpu-0", "gpu-1"])
        await world.add_pod("uses", claims=["c"])
        await world.settle()
        await world.add_pod("named", claims=["c"], nodeName="a")
        await world.settle()
        told = await explained(world, "named")
        assert (told.code, told.message.partition(":")[0]) == (
            "ClaimInUse",
            "claim default/c is not shareable and pod default/uses uses it",
        )

    play(scenario)


def test_what_a_pod_waited_for_before_is_over_when_all_is_allocated(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_pod("wants", "one", schedulerName="nobody")
        await world.settle()
        await world.delete_pod("runs")
        await asyncio.sleep(5)

        told = await explained(world, "wants")

        assert [one.state for one in told.claims] == ["allocated"]
        assert told.code == "Binding"

    play(scenario)


def test_what_drivers_outside_have_allocated_waits_for_the_binding_alone(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a")
        await add_shelf_class(world)
        world.start_driver(ShelfDriver(Behaviour({"a": 1})))
        await world.add_pod("wants", "shelf", schedulerName="nobody")
        await asyncio.sleep(90)

        status = (await world.scheduling("wants")).status
        told = await explained(world, "wants")

        assert (status.waiting_for, status.message) == (told.code, told.message)
        assert told.code == "Binding"
        (mirror,) = await world.mirrors()
        assert mirror.status.allocation is not None

    play(scenario)


def test_claims_of_a_pod_that_has_ended_are_released_and_nothing_is_in_their_way(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_claim("disk")
        await world.publish("a", ["gpu-0", "gpu-1"])
        await world.add_pod("first", "one", claims=["disk"])
        await world.settle()
        await world.finish_pod("first")
        await world.add_pod("second", claims=["disk"])
        await world.settle()
        assert await world.node_of("second")

        told = await explained(world, "first")

        assert [(one.state, one.message) for one in told.claims] == [("released", ""), ("released", "")]

    play(scenario)
