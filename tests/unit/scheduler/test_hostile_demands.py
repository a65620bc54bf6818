"""Pods that ask for too much at once, and nodes that speak for others: they get told, and the others go on."""

from collections.abc import Callable
from typing import Any

import pytest

from parley.api.resources import RESOURCE_SLICES
from parley.drivers.device import DeviceDriver

Play = Callable[[Any], None]


@pytest.mark.doors("native", "extender")
def test_a_pod_with_more_claims_than_are_judged_together_is_told_so(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        await world.add_pod("huge", *["one"] * 129)
        await world.add_pod("small", "one")
        await world.settle()
        message = (
            "pod default/huge has 129 claims of driver device.parley.dev, at most 128 are allowed: "
            "have each claim request more, or divide the work among several pods"
        )
        assert (await world.scheduling("huge")).status.message == message
        assert await world.events_on("huge") == [("ParametersInvalid", message)]
        assert await world.node_of("small") == "a"

    play(scenario)


def test_a_node_that_claims_another_nodes_pool_harms_nobody(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_node("b")
        await world.add_class()
        await world.add_template()
        world.start_parley()
        pool = {"name": "a", "generation": 7}
        spec = {"driver": DeviceDriver.name, "nodeName": "b", "pool": pool, "devices": [{"name": "gpu-0"}]}
        await world.create(RESOURCE_SLICES, {"metadata": {"name": "false"}, "spec": spec})
        await world.settle()
        await world.client.delete(RESOURCE_SLICES, "false")
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"
        await world.plugin_gone("a")
        await world.settle()

    play(scenario)
