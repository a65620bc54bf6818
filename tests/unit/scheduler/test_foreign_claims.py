"""Devices that ordinary claims have: pods that wait for them get them as soon as they are given back."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.test_unheard_bindings import LateClient

from parley.api.resources import BUILTIN_CLAIMS
from parley.drivers.device import DeviceDriver
from parley.sdk import Held

Play = Callable[[Callable[[World], Any]], None]


async def allocate(world: World, *nodes: str) -> None:
    """The structured allocator of the scheduler gives the claim one device of each node."""
    results = [{"request": "it", "driver": DeviceDriver.name, "pool": node, "device": "gpu-0"} for node in nodes]
    status = {"status": {"allocation": {"devices": {"results": results}} if nodes else None}}
    await world.client.patch(BUILTIN_CLAIMS, "ordinary", status, NAMESPACE, subresource="status")


class Careful(DeviceDriver):
    """Takes what it is told of a claim that it knows for a repetition."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def restore(self, held: Held) -> None:
        if held.uid not in self.known:
            self.known.add(held.uid)
            super().restore(held)

    def forget(self, uid: str) -> None:
        self.known.discard(uid)
        super().forget(uid)


@pytest.mark.parametrize("driver", [DeviceDriver, Careful])
@pytest.mark.parametrize("listed", [False, True], ids=["watched", "between two lists"])
def test_a_claim_that_is_allocated_elsewhere_leaves_its_device_to_who_waits_for_it(
    play: Play, listed: bool, driver: Callable[[], DeviceDriver]
) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, devices=1)
        await world.add_class()
        await world.add_template()
        requests = [{"name": "it", "exactly": {"deviceClassName": "example"}}]
        await world.create(
            BUILTIN_CLAIMS,
            {
                "metadata": {"name": "ordinary", "namespace": NAMESPACE},
                "spec": {"devices": {"requests": requests}},
            },
        )
        await allocate(world, "a")
        client = LateClient(world.server.client(), 0.0, {})
        world.start_parley(client, drivers=[driver()])
        await world.add_pod("p", "one", nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle()
        assert await world.node_of("p") == ""
        if listed:
            client.pause()
        await allocate(world)
        await allocate(world, "b")
        await asyncio.sleep(1)
        client.relist()
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)
