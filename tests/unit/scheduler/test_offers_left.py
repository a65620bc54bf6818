"""Offers that a scheduler leaves where they are: its own filters reject the pod everywhere, and then it looks at
no claim. Others may be evicted for the pod all the same."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting

from parley.drivers.device import DeviceDriver
from parley.scheduler.attempts import DECLINED_SECONDS, PATIENCE
from parley.sdk import Allocation
from parley.simulate.kube_scheduler import AS_UPSTREAM, KubeScheduler

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native")


class FailingOnce(DeviceDriver):
    """Its first allocation takes ten seconds and fails."""

    _failed = False

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        if not self._failed:
            await asyncio.sleep(10)
            self._failed = True
            raise RuntimeError("the device did not come up")
        return await super().allocate(request, node)


async def fill(world: World, node: str, priority: int) -> None:
    """A pod without claims that has most of the node's CPUs."""
    await world.add_pod(f"on-{node}", nodeName=node, priority=priority, containers=requesting(cpu=6))


def test_after_a_driver_declined_others_are_evicted_that_took_the_nodes_cpu(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class(placement="Exact")
        await world.add_template("one")
        world.start_parley(drivers=[FailingOnce()])
        await world.add_pod("urgent", "one", priority=5, containers=requesting(cpu=4))
        await asyncio.sleep(5)
        await fill(world, "a", priority=0)
        await world.settle(DECLINED_SECONDS + 30)
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_where_only_others_than_the_offered_nodes_would_do_the_pod_is_offered_anew(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 1)
        await world.add_class(placement="Exact")
        await world.add_template("one")
        world.start_parley()
        await fill(world, "b", priority=0)
        await world.settle(5)
        await world.add_pod("urgent", "one", priority=5, containers=requesting(cpu=4), schedulerName="late")
        await world.settle(5)
        await fill(world, "a", priority=10)
        await world.settle(5)
        scheduler = KubeScheduler(world.client, world.clock, "late", after_failure=AS_UPSTREAM)
        late = asyncio.create_task(scheduler.run())
        await world.settle(PATIENCE.delay(1) + 30)
        late.cancel()
        assert await world.node_of("urgent") == "b"

    play(scenario)
