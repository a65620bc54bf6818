"""Pods whose own claims reserve room, and that have others evicted for devices: never where room is lacking."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import World

from parley.drivers.device import DeviceDriver
from parley.kube.client import NotFound
from parley.sdk import Reserve

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class Reserving(DeviceDriver):
    """Named claims reserve six of a node's eight CPUs."""

    def reserves(self, claim: Any) -> Reserve | None:
        return Reserve({"cpu": "6"}) if not claim.generated else None


async def begin(world: World, **plain: int) -> None:
    """Each node has an ordinary pod of a high priority that uses so many CPUs, and two devices, which pods of
    priority 1, with a CPU, and of priority 2 have."""
    await world.add_class(preemption="LowerPriority")
    await world.add_template()
    world.start_parley(drivers=[Reserving()])
    await world.add_claim("disk")
    for node, cpu in plain.items():
        await world.add_node(node, devices=2)
        where: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node}}
        await world.add_pod(f"plain-{node}", containers=requesting(cpu=cpu), priority=100, **where)
        for priority in (1, 2):
            more: dict[str, Any] = {"containers": requesting(cpu=1)} if priority == 1 else {}
            await world.add_pod(f"{node}-{priority}", "one", priority=priority, **where, **more)
        await world.settle(5)


async def is_there(world: World, pod: str) -> bool:
    try:
        return not (await world.pod(pod)).metadata.deletion_timestamp
    except NotFound:
        return False


def test_nobody_is_evicted_where_the_pods_claims_find_no_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=4)
        await world.add_pod("urgent", "one", claims=["disk"], priority=10)
        await world.settle(700)
        assert not await world.node_of("urgent")
        assert await is_there(world, "a-1")
        assert await is_there(world, "a-2")

    play(scenario)


def test_pods_are_evicted_where_there_is_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=4, b=1)
        await world.add_pod("urgent", "one", claims=["disk"], priority=10)
        await world.settle(700)
        assert await world.node_of("urgent") == "b"
        assert await is_there(world, "a-1")
        assert await is_there(world, "a-2")

    play(scenario)


def test_what_the_evicted_pods_use_makes_room(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=2)
        await world.add_pod("urgent", "one", claims=["disk"], priority=10)
        await world.settle(700)
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_what_the_pod_requests_counts_against_its_own_reservation(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=2)
        more = {"containers": requesting(cpu=5)}
        await world.add_pod("urgent", "one", claims=["disk"], priority=10, **more)
        await world.settle(700)
        assert await world.node_of("urgent") == "a"

    play(scenario)
