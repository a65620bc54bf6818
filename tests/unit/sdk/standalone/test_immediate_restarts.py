"""Immediate claims whose allocation had begun, as far as anybody can tell, when the driver started."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from tests.unit.sdk.standalone.world import DRIVER, NAMESPACE, Array, ArrayDriver, ShelfDriver, World

from parley.api.names import driver_annotation, driver_finalizer
from parley.api.resources import CLAIMS, NODES

Play = Callable[[Callable[[World], Any]], None]


def test_after_a_restart_it_goes_on_where_it_was(play: Play, array: Array) -> None:
    array.stock = dict.fromkeys("abc", 1)

    async def scenario(world: World) -> None:
        for node in ("a", "b", "c"):
            await world.add_node(node)
        await world.add_class()
        task = world.start(ArrayDriver(array))
        await world.add_claim("disk", mode="Immediate")
        await asyncio.sleep(5)
        ((begun, _),) = array.volumes.values()
        await world.kill(task)
        world.start(ArrayDriver(array))
        await world.settle()

        assert await world.node_of("disk") == begun
        assert array.calls["deallocate"] == 0

    play(scenario)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"name": "other"}}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}},
        None,
    ],
    ids=["unsuitable", "cordoned", "tainted", "gone"],
)
def test_after_a_restart_it_starts_over_where_its_node_will_not_do_any_more(
    play: Play, array: Array, change: dict[str, Any] | None
) -> None:
    array.stock = {"a": 1}

    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_node("b")
        named = {"matchExpressions": [{"key": "name", "operator": "In", "values": ["a", "b"]}]}
        await world.add_class(suitableNodes={"nodeSelectorTerms": [named]})
        task = world.start(ArrayDriver(array))
        await world.add_claim("disk", mode="Immediate")
        await asyncio.sleep(5)
        assert list(array.volumes.values()) == [("a", 1)]
        await world.kill(task)
        await (world.client.patch(NODES, "a", change) if change else world.client.delete(NODES, "a"))
        array.stock["b"] = 1
        world.start(ArrayDriver(array))
        await world.settle()

        assert await world.node_of("disk") == "b"
        assert list(array.volumes.values()) == [("b", 1)]
        assert array.faults == []

    play(scenario)


@pytest.mark.parametrize("node", ["full", "nowhere"])
def test_what_claims_to_be_begun_is_not_gone_on_with_where_the_driver_could_not(play: Play, node: str) -> None:
    """The claim has finalizer and annotation, but not by the driver."""

    class Trying(ShelfDriver):
        tried: ClassVar[list[str]] = []

        async def allocate(self, request: Any, node: str) -> Any:
            self.tried.append(node)
            return await super().allocate(request, node)

    async def scenario(world: World) -> None:
        await world.add_node("full", 0)
        await world.add_node("free", 1)
        await world.add_class()
        await world.add_claim("disk", mode="Immediate")
        marks = {"finalizers": [driver_finalizer(DRIVER)], "annotations": {driver_annotation(DRIVER): node}}
        await world.client.patch(CLAIMS, "disk", {"metadata": marks}, NAMESPACE)
        driver = Trying()
        world.start(driver)
        await world.settle()

        assert await world.node_of("disk") == "free"
        assert driver.tried == ["free"]

    play(scenario)
