"""A pod that has all its claims keeps them for a time for its scheduler to bind it, each time anew."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.grump import APART, add_grump
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.resources import PODS
from parley.kube.client import Call, Client, RawEvent
from parley.scheduler.attempts import PATIENCE
from parley.simulate.status_writes import patch_claim

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


def test_it_begins_anew_after_a_scheduler_refused_a_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world)
        await world.add_claim("disk", "shelf")
        behaviour = Behaviour(other=1)
        world.start_parley(drivers=[ShelfDriver(behaviour)])
        await world.add_pod("p", claims=["disk"], schedulerName="thoughtful")
        await asyncio.sleep(PATIENCE.first - 10)
        mirror = await world.mirror("disk")
        assert mirror is not None
        await patch_claim(world.client, mirror, {"allocation": None, "reservedFor": None, "devices": None})
        await asyncio.sleep(PATIENCE.first - 10)
        assert len(behaviour.allocated) == 2
        await asyncio.sleep(20)
        assert len(behaviour.allocated) == 3

    play(scenario)


class LateEnd(Client):
    """A watch of pods that shows nothing for a second after it has shown a nomination for the node."""

    def __init__(self, client: Client, node: str) -> None:
        super().__init__(client)
        self._nominated = f'"nominatedNodeName":"{node}"'

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            yield event
            if call.resource == PODS and self._nominated in str(event):
                await asyncio.sleep(1)


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("late", [False, True], ids=["", "the end of the nomination is seen late"])
def test_what_is_allocated_elsewhere_then_is_seen_by_a_scheduler_whose_own_filters_rejected_the_pod(
    play: Play, named: bool, late: bool
) -> None:
    """It does not try the pod again because of its claims (isPodWorthRequeuing)."""

    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node)
            await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu="6"))
        await add_grump(world, "a", priority=2000)
        await add_shelf_class(world)
        behaviour = Behaviour(other=1)
        client = world.server.client()
        world.start_parley(LateEnd(client, "a") if late else client, drivers=[ShelfDriver(behaviour)])
        if named:
            await world.add_claim("disk", "shelf")
        templates, claims = ((), ("disk",)) if named else (("shelf",), ())
        needs: dict[str, Any] = {"priority": 1000, "affinity": APART, "containers": requesting(cpu="4")}
        await world.add_pod("p", *templates, claims=claims, **needs)
        await asyncio.sleep(PATIENCE.first + 30)
        assert behaviour.allocated == ["a", "b"]
        assert await world.node_of("p") == "b"
        assert (await world.pod("p")).status.nominated_node_name == ""

    play(scenario)
