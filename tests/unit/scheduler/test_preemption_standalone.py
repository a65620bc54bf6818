"""Ordinary pods are evicted, by both schedulers, for a pod whose claims a standalone driver allocates."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.grump import APART, add_grump
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.resources import PODS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begin(world: World, places: dict[str, int], fits: str = "") -> Behaviour:
    """Nodes that are full of pods of low priority, but for the one where the important pod `fits`."""
    behaviour = Behaviour(places)
    for node in places:
        await world.add_node(node, devices=1)
    await add_shelf_class(world)
    await world.add_class()
    await world.add_template()
    world.start_parley()
    world.start_driver(ShelfDriver(behaviour))
    for node in places:
        if node != fits:
            await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="8"))
    await world.settle()
    return behaviour


async def important(world: World, *templates: str, **spec: Any) -> str:
    """The node of a pod of high priority."""
    await world.add_pod("important", *templates, priority=1000, containers=requesting(cpu="4"), **spec)
    await world.settle(60)
    return await world.node_of("important")


async def evicted(world: World, *nodes: str) -> list[str]:
    there = {pod.metadata.name for pod in (await world.client.list(PODS)).items}
    return [node for node in nodes if f"weak-{node}" not in there]


@pytest.mark.parametrize("templates", [("shelf",), ("shelf", "one")], ids="-".join)
def test_pods_are_evicted_where_the_driver_allocated(play: Any, templates: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 0, "b": 1, "c": 0})
        assert await important(world, *templates) == "b"
        assert await evicted(world, "a", "b", "c") == ["b"]

    play(scenario)


def test_nobody_is_evicted_where_the_driver_finds_nothing_viable(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, {"a": 0, "b": 0})
        assert await important(world, "shelf") == ""
        assert await evicted(world, "a", "b") == []
        assert "full" in (await world.scheduling("important")).status.message
        assert behaviour.allocated == []

    play(scenario)


def test_nobody_is_evicted_for_a_pod_that_may_not_preempt_though_it_fits_where_the_driver_refuses(
    play: Any,
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 0}, fits="b")
        assert await important(world, "shelf", preemptionPolicy="Never") == ""
        assert await evicted(world, "a") == []

    play(scenario)


def test_nobody_is_evicted_for_a_pod_that_may_not_preempt(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, {"a": 1, "b": 1})
        assert await important(world, "shelf", preemptionPolicy="Never") == ""
        assert await evicted(world, "a", "b") == []
        assert behaviour.asked == []
        if world.scheduling_path == "native":  # the second scheduler asks about no node
            assert "nodes a, b: too little cpu left" in (await world.scheduling("important")).status.message

    play(scenario)


def test_nobody_is_evicted_where_the_pod_fits_somewhere(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 1}, fits="b")
        assert await important(world, "shelf") == "b"
        assert await evicted(world, "a") == []

    play(scenario)


@pytest.mark.parametrize("templates", [("shelf",), ("shelf", "one")], ids="-".join)
def test_pods_are_evicted_if_the_driver_refuses_where_the_pod_fits(play: Any, templates: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 0, "c": 0}, fits="b")
        assert await important(world, *templates) == "a"
        assert await evicted(world, "a", "c") == ["a"]

    play(scenario)


@pytest.mark.parametrize("quickly", [True, False])
def test_pods_are_evicted_on_one_node_though_the_scheduler_first_takes_back_what_was_allocated(
    play: Any, quickly: bool
) -> None:
    """It fits on another node but for its claims, and kube-scheduler clears these before it evicts anybody."""

    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 0, "c": 1}, fits="b")
        if quickly:
            node = await important(world, "shelf", "one")
            assert await evicted(world, "a", "c") == [node]
            return
        for node in "ac":
            world.kubelets.stop(node)
        assert await important(world, "shelf", "one") == ""
        (leaving,) = [n for n in "ac" if (await world.pod(f"weak-{n}")).metadata.deletion_timestamp]
        await world.finish_pod(f"weak-{leaving}")
        await world.settle(60)
        assert await world.node_of("important") == leaving
        assert [n for n in "ac" if (await world.pod(f"weak-{n}")).metadata.deletion_timestamp] == [leaving]

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_nodes_that_the_scheduler_refused_are_offered_again_after_a_pause(
    play: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(world: World) -> None:
        for node in "ab":
            await world.add_node(node)
            await add_grump(world, node, priority=9000)
        await add_shelf_class(world)
        world.start_parley()
        world.start_driver(ShelfDriver(Behaviour({"a": 1, "b": 1})))
        await world.add_pod("apart", "shelf", affinity=APART)
        await world.settle(2000)
        assert await world.node_of("apart") == ""
        await world.delete_pod("grump-b")
        await world.settle(2000)
        assert await world.node_of("apart") == "b"

    play(scenario)
    assert "work failed" not in capsys.readouterr().out


def test_a_node_that_fits_comes_before_those_where_others_would_be_evicted(play: Any) -> None:
    """Also for pods about which the driver is not asked, because it told its capacity before."""

    async def scenario(world: World) -> None:
        await begin(world, {"a": 8, "b": 2, "c": 8}, fits="b")
        for number in range(2):
            name, requests = f"important-{number}", requesting(cpu="4")
            await world.add_pod(name, "shelf", priority=1000, containers=requests)
        await world.settle(60)
        assert [await world.node_of(f"important-{number}") for number in range(2)] == ["b", "b"]
        assert await evicted(world, "a", "c") == []

    play(scenario)


def test_what_the_pod_waits_for_while_others_end(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 0}, fits="b")
        world.kubelets.stop("a")
        assert await important(world, "shelf") == ""
        assert (await world.pod("weak-a")).metadata.deletion_timestamp
        status = (await world.scheduling("important")).status
        assert status.waiting_for == "Preempting"
        verb = "has to evict" if world.scheduling_path == "extender" else "evicts"
        assert status.message.startswith(f"node a: the pod's scheduler {verb} other pods")
        await world.finish_pod("weak-a")
        await world.settle(60)
        assert await world.node_of("important") == "a"

    play(scenario)


@pytest.mark.parametrize("places", [{"a": 1}, {"a": 1, "b": 0}], ids=["", "it fits where the driver refuses"])
def test_what_was_allocated_in_vain_is_given_back(play: Any, places: dict[str, int]) -> None:
    """Its scheduler does not evict: a pod of the highest priority came to the node meanwhile."""

    async def scenario(world: World) -> None:
        behaviour = await begin(world, places, fits="b")
        behaviour.trouble = occupied_by_another(world)
        assert await important(world, "shelf") == ""
        await asyncio.sleep(1200)
        assert await world.node_of("important") == ""
        assert not await world.mirrors() or not any(m.status.allocation for m in await world.mirrors())

    play(scenario)


def occupied_by_another(world: World) -> Any:
    async def trouble(node: str) -> None:
        if not any(pod.metadata.name == "vital" for pod in (await world.client.list(PODS)).items):
            await world.add_pod("vital", nodeName=node, priority=9000, containers=requesting(cpu="8"))

    return trouble
