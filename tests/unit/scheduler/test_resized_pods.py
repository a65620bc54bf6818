"""Room that a resized pod gives up is offered to those who wait for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting

from parley.api.resources import PODS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


async def show(world: World, cpu: str) -> None:
    """As the kubelet does: what the container was admitted with and has."""
    status = {"name": "main", "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
    body = {"status": {"containerStatuses": [status]}}
    await world.client.patch(PODS, "large", body, "default", subresource="status")


def test_the_room_is_offered_when_the_node_has_actuated_the_resize(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        await world.add_pod("large", nodeName="a", containers=requesting(cpu="6"))
        await show(world, "6")
        await world.settle(2)
        await world.add_pod("waits", "one", containers=requesting(cpu="4"))
        await world.settle()
        await world.client.patch(PODS, "large", {"spec": {"containers": requesting(cpu="1")}}, "default")
        await world.settle()
        assert await world.node_of("waits") == ""
        await show(world, "1")
        await world.settle(5)
        assert await world.node_of("waits") == "a"

    play(scenario)


def of_the_pod(cpu: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "none"}], "resources": {"requests": {"cpu": cpu}}}


def of_a_sidecar(cpu: str) -> dict[str, Any]:
    (sidecar,) = requesting(cpu=cpu)
    return {
        "containers": [{"name": "main", "image": "none"}],
        "initContainers": [{**sidecar, "name": "sidecar", "restartPolicy": "Always"}],
    }


@pytest.mark.parametrize("requests", [of_the_pod, of_a_sidecar])
def test_a_pod_that_its_node_has_not_reported_about_counts_as_its_spec_says_now(
    play: Play, requests: Callable[[str], dict[str, Any]]
) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        await world.add_pod("large", nodeName="a", **requests("6"))
        await world.settle(2)
        await world.add_pod("waits", "one", containers=requesting(cpu="4"))
        await world.settle()
        assert await world.node_of("waits") == ""
        await world.client.patch(PODS, "large", {"spec": requests("1")}, "default")
        await world.settle(5)
        assert await world.node_of("waits") == "a"

    play(scenario)
