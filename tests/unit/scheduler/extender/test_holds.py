"""What a pod was told holds until its bind: no bind fails, however full the cluster is."""

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, no_trouble, slow

from parley.kube.client import Call, Client

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

T = TypeVar("T")


class SlowBindings(Client):
    """An API server that takes three seconds for a binding."""

    async def request(self, call: Call) -> bytes:
        if call.subresource == "binding":
            await asyncio.sleep(3)
        return await super().request(call)


async def begin(world: World, nodes: int, client: Any = None, **behaviour: Any) -> Behaviour:
    shelf = Behaviour(**{"other": 1, **behaviour})
    for i in range(nodes):
        await world.add_node(f"n{i:02}")
    await add_shelf_class(world)
    world.start_parley(client, drivers=[ShelfDriver(shelf)])
    return shelf


async def bound(world: World, *names: str) -> list[str]:
    return [name for name in names if await world.node_of(name)]


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_no_bind_fails_at_exact_fullness(play: Any, seconds: float) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world, 20, other=2, trouble=slow(seconds) if seconds else no_trouble)
        names = [f"p{i:02}" for i in range(60)]
        for name in names:
            await world.add_pod(name, "shelf")
        await world.settle()
        assert len(await bound(world, *names)) == 40
        assert world.calls.failed_binds == []
        assert shelf.calls["allocate"] == 40

    play(scenario)


def test_claims_of_several_sizes_fill_the_shelves_without_a_failed_bind(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 5, other=6)
        await world.add_template("three", "shelf", count=3)
        await world.add_template("two", "shelf", count=2)
        names = [f"p{i:02}" for i in range(18)]
        for i, name in enumerate(names):
            await world.add_pod(name, *(("three",), ("two",), ("shelf",))[i % 3])
        await world.settle()
        assert world.calls.failed_binds == []
        held = sum(len(world.ledger.of_pod_name("default", name)) for name in names)
        assert held == len(await bound(world, *names)) >= 14

    play(scenario)


def test_what_is_freed_goes_to_one_of_those_that_wait(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 3)
        names = [f"p{i}" for i in range(9)]
        for name in names:
            await world.add_pod(name, "shelf")
        await world.settle()
        done: set[str] = set()
        while left := set(await bound(world, *names)) - done:
            assert len(left) == 3
            gone = sorted(left)[0]
            done.add(gone)
            await world.finish_pod(gone)
            await asyncio.sleep(3)
            if len(done) > 6:
                break
        assert world.calls.failed_binds == []

    play(scenario)


def test_several_pods_that_want_one_pending_claim_go_to_one_node(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world, 5, trouble=slow(3))
        await world.add_class("common", driverName=ShelfDriver.name, shareable=True)
        await world.add_claim("disk", "common")
        names = [f"p{i}" for i in range(6)]
        for name in names:
            await world.add_pod(name, claims=["disk"])
        await world.settle()
        assert len({await world.node_of(name) for name in names}) == 1
        assert await bound(world, *names) == names
        assert shelf.calls["allocate"] == 1
        assert world.calls.failed_binds == []

    play(scenario)


def test_an_exclusive_pending_claim_is_told_to_one_pod_only(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world, 3, trouble=slow(3))
        await world.add_claim("disk", "shelf")
        for name in ("p", "q", "r"):
            await world.add_pod(name, claims=["disk"])
        served: list[str] = []
        for _ in range(3):
            await world.settle()
            (now,) = [name for name in await bound(world, "p", "q", "r") if name not in served]
            served.append(now)
            await world.finish_pod(now)
        await world.settle()
        assert sorted(served) == ["p", "q", "r"]
        assert world.calls.failed_binds == []
        assert shelf.calls["allocate"] == 3

    play(scenario)


def test_a_pod_whose_bind_never_comes_keeps_others_out_for_a_second_only(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 1)
        await world.add_pod("asks", "shelf", schedulerName="parley-away")
        await world.settle()
        answer = await world.ask("filter", await world.question("asks", "n00"))
        assert answer["NodeNames"] == ["n00"]
        await world.add_pod("p", "shelf")
        await asyncio.sleep(0.5)
        assert await world.node_of("p") == ""
        await asyncio.sleep(1.5)
        assert await world.node_of("p") == "n00"

    play(scenario)


def test_limits_of_a_class_hold_beside_what_others_were_told(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = Behaviour(other=100, trouble=slow(1))
        await world.add_node("a")
        await add_shelf_class(world, limits=[{"claims": 3}])
        world.start_parley(drivers=[ShelfDriver(shelf)])
        names = [f"p{i}" for i in range(8)]
        for name in names:
            await world.add_pod(name, "shelf")
        await world.settle()
        assert len(await bound(world, *names)) == 3
        assert world.calls.failed_binds == []

    play(scenario)


def test_a_claim_counts_for_limits_although_another_pod_whose_bind_never_came_was_to_have_it(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await add_shelf_class(world, limits=[{"claims": 1}])
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=100))])
        await world.add_claim("disk", "shelf")
        await world.add_pod("asks", claims=["disk"], schedulerName="parley-away")
        await world.settle()
        assert (await world.ask("filter", await world.question("asks", "a")))["NodeNames"] == ["a"]
        await world.add_pod("p", claims=["disk"], schedulerName="default-scheduler")
        await asyncio.sleep(0.5)
        assert await world.node_of("p") == "a"
        await asyncio.sleep(1.5)
        await world.add_pod("q", "shelf", schedulerName="default-scheduler")
        await world.settle()
        assert await world.node_of("q") == ""

    play(scenario)


def test_pods_are_told_nodes_that_nobody_was_told_before_as_long_as_there_are_any(play: Any) -> None:
    async def scenario(world: World) -> None:
        nodes = [f"n{i:02}" for i in range(20)]
        for name in nodes:
            await world.add_node(name, devices=2)
        await world.add_class(prefer="Spread")
        await world.add_template()
        world.start_parley()
        names = ("p", "q", "r")
        for name in names:
            await world.add_pod(name, "one", schedulerName="parley-away")
        await world.settle()
        told = [(await world.ask("filter", await world.question(name, *nodes)))["NodeNames"] for name in names]
        assert [len(answer) for answer in told] == [8, 8, 8]
        assert set(told[0]).isdisjoint(told[1])
        assert {node for answer in told for node in answer} == set(nodes)

    play(scenario)


def test_what_a_pod_was_allocated_is_counted_once_while_its_binding_is_on_its_way(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 1, client=SlowBindings(world.server.client()), other=2)
        await world.add_pod("p", "shelf")
        await world.add_pod("asks", "shelf", schedulerName="parley-away")
        await asyncio.sleep(2)
        assert world.ledger.of_pod_name("default", "p")
        assert await world.node_of("p") == ""
        assert (await world.ask("filter", await world.question("asks", "n00")))["NodeNames"] == ["n00"]

    play(scenario)
