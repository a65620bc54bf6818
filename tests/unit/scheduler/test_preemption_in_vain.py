"""Whom to evict for a pod is looked for where something has changed: pods that wait in vain cost no more in a
large cluster, and nobody waits for their searches."""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.claim_preemption.preempting import begin, hold

from parley.api.resources import CLASSES
from parley.drivers.device import DeviceDriver
from parley.drivers.device.driver import DeviceRequest
from parley.scheduler.victim_search import AT_A_TIME

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class Asked(DeviceDriver):
    """Notes about which nodes it was asked as if others had left, and how often without a turn of others."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[str] = []
        self.longest = 0
        self._in_a_row = 0

    def viable_without(self, request: DeviceRequest, node: str, uids: Collection[str]) -> bool:
        self.nodes.append(node)
        if not self._in_a_row:
            asyncio.get_running_loop().call_soon(self._turn_of_others)
        self._in_a_row += 1
        self.longest = max(self.longest, self._in_a_row)
        return super().viable_without(request, node, uids)

    def _turn_of_others(self) -> None:
        self._in_a_row = 0


async def full(world: World, driver: Asked, nodes: int, preemption: str = "LowerPriority") -> list[str]:
    """Nodes with a device each, all held by pods of a low priority. Returns the names of the pods that were
    deleted, as they are."""
    names = [f"node-{number}" for number in range(nodes)]
    evicted = await begin(world, preemption, None, [driver], **dict.fromkeys(names, 1))
    await hold(world, **{f"holder-{number}": 1 for number in range(nodes)})
    return evicted


def test_after_a_change_on_a_node_nobody_is_looked_for_on_the_others(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = Asked()
        evicted = await full(world, driver, 12)
        await world.add_pod("in-vain", "two", priority=10)
        await world.settle(60)
        assert len(set(driver.nodes)) == 12
        node = await world.node_of("holder-3")
        driver.nodes.clear()
        await world.finish_pod("holder-3")
        await world.settle(120)
        assert set(driver.nodes) <= {node}
        assert not evicted

    play(scenario)


def test_where_it_is_enough_after_a_change_pods_are_evicted(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await full(world, Asked(), 12)
        await world.add_pod("waits", "two", priority=10)
        await world.settle(60)
        node = await world.node_of("holder-3")
        await world.publish(node, ["gpu-0", "gpu-1"])
        await world.settle(60)
        assert await world.node_of("waits") == node
        assert evicted == ["holder-3"]

    play(scenario)


def test_once_a_class_lets_its_pods_be_evicted_all_nodes_are_looked_at(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = Asked()
        evicted = await full(world, driver, 12, "Never")
        await world.add_class("other", preemption="LowerPriority")
        await world.add_template("urgent", "other")
        await world.add_pod("waits", "urgent", priority=10)
        await world.settle(60)
        assert not evicted
        await world.client.patch(CLASSES, "gpu", {"preemption": "LowerPriority"})
        await world.settle(60)
        assert await world.node_of("waits")
        assert len(evicted) == 1

    play(scenario)


def test_a_search_of_many_nodes_gives_way_to_others(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = Asked()
        await full(world, driver, 4 * AT_A_TIME)
        await world.add_pod("in-vain", "two", priority=10)
        await world.settle(60)
        assert len(set(driver.nodes)) == 4 * AT_A_TIME
        assert driver.longest <= AT_A_TIME

    play(scenario)


def test_who_waits_for_a_driver_that_says_neither_yes_nor_no_is_told(play: Play) -> None:
    """Answers count as true whatever they are: nobody was evicted, and nobody knew why."""

    class Answering(Asked):
        def viable_without(self, request: DeviceRequest, node: str, uids: Collection[str]) -> Any:
            return self.viable(request, (node,))

    async def scenario(world: World) -> None:
        await full(world, Answering(), 3)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(60)
        message = (await world.scheduling("urgent")).status.message
        assert message.endswith("from viable_without; it must be True or False")

    play(scenario)
