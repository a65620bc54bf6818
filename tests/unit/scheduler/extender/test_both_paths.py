"""Both paths at work on one cluster: they share devices and claims, and each pod belongs to one of them."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, restart, slow

from parley.api.resources import CLASSES, PODS
from parley.simulate.kube_scheduler import KubeScheduler

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

SCHEDULERS = ("default-scheduler", "parley")


async def begin(world: World, nodes: int = 4, **behaviour: Any) -> Behaviour:
    shelf = Behaviour(**{"other": 1, **behaviour})
    for i in range(nodes):
        await world.add_node(f"n{i}")
    await add_shelf_class(world)
    world.start_parley(drivers=[ShelfDriver(shelf)])
    return shelf


async def bound(world: World, *names: str) -> list[str]:
    return [name for name in names if await world.node_of(name)]


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_pods_of_both_schedulers_share_what_there_is(play: Any, seconds: float) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world, 8, trouble=slow(seconds))
        names = [f"p{i:02}" for i in range(20)]
        for i, name in enumerate(names):
            await world.add_pod(name, "shelf", schedulerName=SCHEDULERS[i % 2])
        await world.settle()
        first = await bound(world, *names)
        assert len(first) == 8
        assert world.calls.failed_binds == []
        assert shelf.calls["allocate"] == 8
        for name in first:
            await world.finish_pod(name)
        await world.settle()
        second = await bound(world, *names)
        assert len(second) == 16
        for name in set(second) - set(first):
            await world.finish_pod(name)
        await world.settle()
        assert await bound(world, *names) == names

    play(scenario)


def test_a_shared_claim_serves_pods_of_both_schedulers_on_one_node(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world, trouble=slow(1))
        await world.add_class("common", driverName=ShelfDriver.name, shareable=True)
        await world.add_claim("disk", "common")
        names = [f"p{i}" for i in range(6)]
        for i, name in enumerate(names):
            await world.add_pod(name, claims=["disk"], schedulerName=SCHEDULERS[i % 2])
        await world.settle()
        assert await bound(world, *names) == names
        assert len({await world.node_of(name) for name in names}) == 1
        assert shelf.calls["allocate"] == 1

    play(scenario)


def test_an_exclusive_claim_goes_from_hand_to_hand_between_the_schedulers(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_claim("disk", "shelf")
        names = [f"p{i}" for i in range(6)]
        for i, name in enumerate(names):
            await world.add_pod(name, claims=["disk"], schedulerName=SCHEDULERS[i % 2])
            await asyncio.sleep(1)
        served: list[str] = []
        for _ in names:
            await world.settle()
            (now,) = [name for name in await bound(world, *names) if name not in served]
            served.append(now)
            await world.finish_pod(now)
        assert sorted(served) == names

    play(scenario)


def test_the_native_path_leaves_this_paths_pods_alone(play: Any) -> None:
    async def scenario(world: World) -> None:
        world.link.cut()
        shelf = await begin(world)
        world.link.cut()
        await world.add_pod("p", "shelf")
        await world.add_pod("q", "shelf", schedulerName="default-scheduler")
        await world.settle()
        assert await bound(world, "p", "q") == ["q"]
        assert shelf.calls["allocate"] == 1
        assert world.calls.count == {}

    play(scenario)


def test_two_schedulers_of_one_name_bind_each_pod_once(play: Any) -> None:
    async def scenario(world: World) -> None:
        other = asyncio.create_task(KubeScheduler(world.client, world.clock, "parley", world.link).run())
        shelf = await begin(world, 10, trouble=slow(0.5))
        names = [f"p{i:02}" for i in range(15)]
        for name in names:
            await world.add_pod(name, "shelf")
        await world.settle()
        assert len(await bound(world, *names)) == 10
        assert shelf.calls["allocate"] - shelf.calls["deallocate"] == 10
        for name in await bound(world, *names):
            await world.delete_pod(name)
        await world.settle()
        assert len(world.ledger) == 5
        assert not other.done()
        other.cancel()

    play(scenario)


def test_pods_of_the_other_scheduler_do_not_notice_that_the_extender_is_down(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world)
        await world.crash()
        await world.add_pod("p", "shelf")
        await world.add_pod("plain")
        await world.add_pod("other", schedulerName="default-scheduler")
        await asyncio.sleep(10)
        assert await bound(world, "p", "plain", "other") == ["other"]
        await restart_after_crash(world, shelf)
        await asyncio.sleep(3)
        assert await bound(world, "p", "plain") == ["p", "plain"]

    play(scenario)


async def restart_after_crash(world: World, shelf: Behaviour) -> None:
    world.start_parley(drivers=[ShelfDriver(shelf)])
    await asyncio.sleep(0)


def test_what_a_pod_was_promised_before_a_restart_is_promised_to_nobody_else(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world, 1, trouble=slow(20))
        await world.add_pod("p", "shelf")
        await asyncio.sleep(10)
        await restart(world, [ShelfDriver(shelf)], after=1)
        await world.add_pod("q", "shelf")
        await world.settle()
        assert len(await bound(world, "p", "q")) == 1
        assert len(world.ledger) == 1

    play(scenario)


def test_a_pod_that_others_bound_gets_its_claims_where_it_is(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("p", "shelf", nodeName="n2")
        await world.settle()
        pod = await world.pod("p")
        assert (pod.spec.node_name, pod.status.phase) == ("n2", "Running")

    play(scenario)


def test_a_pod_that_its_kubelet_refuses_gives_its_claims_back(play: Any) -> None:
    """As with OutOfcpu: another scheduler took the node's CPUs a moment before."""

    async def scenario(world: World) -> None:
        await begin(world, 1)
        world.kubelets.stop("n0")
        await world.add_pod("p", "shelf")
        await world.settle()
        assert await world.node_of("p") == "n0"
        failed = {"status": {"phase": "Failed", "reason": "OutOfcpu"}}
        await world.client.patch(PODS, "p", failed, "default", subresource="status")
        await world.add_pod("q", "shelf")
        await world.settle()
        assert await world.node_of("q") == "n0"

    play(scenario)


def test_a_named_claim_counts_for_limits_while_it_is_allocated_though_another_pod_asked_for_it(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, trouble=slow(20))
        await world.client.patch(CLASSES, "shelf", {"limits": [{"claims": 1}]})
        await world.add_claim("disk", "shelf")
        await world.add_pod("first", claims=["disk"], schedulerName="default-scheduler")
        await asyncio.sleep(5)
        await world.add_pod("second", claims=["disk"], schedulerName="parley")
        await asyncio.sleep(5)
        await world.add_pod("third", "shelf", schedulerName="default-scheduler")
        await world.settle()
        assert await bound(world, "first", "second", "third") == ["first"]
        assert world.calls.failed_binds == []

    play(scenario)
