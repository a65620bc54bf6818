"""The garbage collector is away for minutes: the PodScheduling of a pod that is gone is there still."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.disks import Disks

from parley.api.resources import CLASSES

Play = Callable[..., None]

AWAY = 600.0


async def _equipped(world: World) -> None:
    for node in "ab":
        await world.add_node(node, devices=1)
    await world.add_class()
    await world.add_template()
    await world.add_class("disk")
    await world.client.patch(CLASSES, "disk", {"driverName": Disks.name})
    await world.add_template("disk", "disk")
    world.start_parley()
    world.start_driver(Disks("ab"))
    await world.settle()
    world.server.garbage_lag = lambda: AWAY


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("former", [("one",), ("disk",), ("one", "disk")], ids="-".join)
@pytest.mark.parametrize("templates", [("one",), ("disk",), ("one", "disk")], ids="-".join)
def test_the_next_pod_of_the_name_runs_all_the_same(
    play: Play, former: Sequence[str], templates: Sequence[str]
) -> None:
    """As in a StatefulSet. What was created for an embedded driver, and applied for another pod, had two
    controllers, which the API server refuses."""

    async def scenario(world: World) -> None:
        await _equipped(world)
        await world.add_pod("web-0", *former)
        await asyncio.sleep(60)
        await world.force_delete("web-0")
        await world.add_pod("web-0", *templates)
        await asyncio.sleep(60)

        pod, scheduling = await world.pod("web-0"), await world.scheduling("web-0")
        assert pod.status.phase == "Running"
        assert [owner.uid for owner in scheduling.metadata.owner_references] == [pod.metadata.uid]
        assert scheduling.spec.selected_node == pod.spec.node_name

    play(scenario)
