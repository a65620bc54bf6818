"""What was held for an allocation of which nothing came is free again: those who waited for it hear of that."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.sdk import Allocation, PermanentError

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


@pytest.mark.parametrize("fails", [True, False])
def test_the_next_pod_gets_in_when_nothing_comes_of_a_slow_allocation(play: Play, fails: bool) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("n")
        await add_shelf_class(world)
        behaviour = Behaviour(other=1, trouble=slow(10, PermanentError("broken for this pod") if fails else None))
        world.start_parley(drivers=[ShelfDriver(behaviour)])
        await world.settle(2)
        await world.add_pod("first", "shelf")
        await asyncio.sleep(2)
        await world.add_pod("second", "shelf")
        await asyncio.sleep(3)
        if not fails:
            await world.force_delete("first")
        await asyncio.sleep(3)
        behaviour.trouble = Behaviour().trouble
        await asyncio.sleep(400)
        assert await world.node_of("second") == "n"

    play(scenario)


class CutOff(ShelfDriver):
    """What is behind it has allocated, and the answer is lost."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        if node == "a":
            raise TimeoutError("no answer from the shelf")
        return found


def test_what_a_failed_allocation_holds_after_all_is_given_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=1)
        await add_shelf_class(world)
        await world.add_node("a")
        driver = CutOff(behaviour)
        world.start_parley(drivers=[driver])
        await world.add_pod("first", "shelf")
        await world.settle(2)
        assert not await world.node_of("first")
        assert behaviour.allocated
        assert driver.held == {}

        await world.add_node("b")
        await world.settle(400)
        assert await world.node_of("first") == "b"
        assert [node for node, _ in driver.held.values()] == ["b"]

    play(scenario)


class OnceStuck(ShelfDriver):
    """Can't give back anything the first time."""

    async def deallocate(self, uid: str) -> None:
        self.behaviour.calls["tried"] += 1
        if self.behaviour.calls["tried"] == 1:
            raise RuntimeError("the shelf is jammed")
        await super().deallocate(uid)


def test_what_a_driver_could_not_give_back_at_once_for_a_pod_that_is_gone_is_given_back_later(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("n")
        await add_shelf_class(world)
        behaviour = Behaviour(other=1, trouble=slow(10))
        world.start_parley(drivers=[OnceStuck(behaviour)])
        await world.settle(2)
        await world.add_pod("first", "shelf")
        await asyncio.sleep(2)
        await world.force_delete("first")
        await asyncio.sleep(3)
        behaviour.trouble = Behaviour().trouble
        await world.add_pod("second", "shelf")
        await asyncio.sleep(400)
        assert await world.node_of("second") == "n"

    play(scenario)
