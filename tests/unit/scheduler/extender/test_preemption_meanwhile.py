"""Nobody is evicted for a pod while another one is about to get its named claim, or while it is being bound."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import AWAY
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


async def begin(world: World, shareable: bool) -> None:
    """Node `a` is empty, the CPUs of `b` are in use by a pod of low priority. Allocations take 20 s."""
    for node in ("a", "b"):
        await world.add_node(node)
    await add_shelf_class(world, shareable=shareable)
    world.start_parley(drivers=[ShelfDriver(Behaviour(other=2, trouble=slow(20)))])
    await world.add_claim("disk", "shelf")
    await world.add_pod("weak", nodeName="b", priority=1, containers=requesting(cpu="8"))
    await world.settle()


async def evicted_for(world: World, pod: str) -> list[str]:
    """The nodes on which its scheduler may evict pods for the pod, of `b`."""
    weak = await world.pod("weak")
    victims = {"b": {"Pods": [{"UID": weak.metadata.uid}], "NumPDBViolations": 0}}
    question = {"Pod": (await world.question(pod))["Pod"], "NodeNameToMetaVictims": victims}
    return list((await world.ask("preempt", question))["NodeNameToMetaVictims"])


@pytest.mark.parametrize("shareable", [False, True])
def test_nobody_is_evicted_where_the_claim_will_not_be(play: Any, shareable: bool) -> None:
    async def scenario(world: World) -> None:
        await begin(world, shareable)
        await world.add_pod("first", claims=["disk"], priority=1000, containers=requesting(cpu="4"))
        await asyncio.sleep(5)
        assert world.calls.count["bind"] == 1
        more = "6" if shareable else "4"  # another user has to fit beside the first
        await world.add_pod("second", claims=["disk"], priority=1000, containers=requesting(cpu=more))
        await asyncio.sleep(10)
        assert world.calls.count["preempt"] > 0
        await world.settle()
        assert await world.node_of("first") == "a"
        assert await world.node_of("second") == ""
        assert (await world.pod("weak")).status.phase == "Running"
        await world.finish_pod("first")
        await world.settle()
        assert await world.node_of("second") == "a"

    play(scenario)


def test_nobody_is_evicted_for_a_pod_while_it_is_anothers_turn_with_the_claim(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, shareable=False)
        await world.add_pod("user", claims=["disk"], nodeName="a", containers=requesting(cpu="1"))
        await world.settle()
        for name in ("first", "second"):
            spec = {"priority": 1000, "schedulerName": AWAY, "containers": requesting(cpu="4")}
            await world.add_pod(name, claims=["disk"], **spec)
            await asyncio.sleep(1)
            assert (await world.ask("filter", await world.question(name, "a")))["NodeNames"] == []
        await world.finish_pod("user")
        await asyncio.sleep(1)
        assert (await world.ask("filter", await world.question("second", "a")))["NodeNames"] == []
        assert await evicted_for(world, "second") == []
        await asyncio.sleep(10)
        assert (await world.ask("filter", await world.question("second", "a")))["NodeNames"] == ["a"]

    play(scenario)


def test_nobody_is_evicted_for_a_pod_that_is_being_bound(play: Any) -> None:
    """Another copy of its scheduler leads by now."""

    async def scenario(world: World) -> None:
        await begin(world, shareable=False)
        await world.add_pod(
            "p", claims=["disk"], priority=1000, schedulerName=AWAY, containers=requesting(cpu="4")
        )
        await asyncio.sleep(1)
        pod = await world.pod("p")
        assert (await world.ask("filter", await world.question("p", "a")))["NodeNames"] == ["a"]
        asked = {"PodName": "p", "PodNamespace": "default", "PodUID": pod.metadata.uid, "Node": "a"}
        bind = asyncio.create_task(world.ask("bind", asked))
        await asyncio.sleep(5)
        assert (await world.ask("filter", await world.question("p", "a")))["NodeNames"] == []
        assert await evicted_for(world, "p") == []
        assert (await bind)["Error"] == ""
        assert await world.node_of("p") == "a"

    play(scenario)
