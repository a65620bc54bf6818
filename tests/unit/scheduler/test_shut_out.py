"""Pods that others bound to a node and that name a claim whose built-in one is being deleted: it takes no new
reservation, so that they run once it was recreated."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient

from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.client import Call

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def runs(world: World, name: str) -> bool:
    return (await world.pod(name)).status.phase == "Running"


def test_a_pod_on_its_node_does_not_keep_a_claim_that_it_can_not_get(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class(shareable=True)
        await world.add_claim("common")
        world.start_parley()
        await world.add_pod("p1", claims=["common"])
        await world.settle()
        await world.client.delete(BUILTIN_CLAIMS, "common", "default")
        await world.add_pod("p2", claims=["common"], nodeName="a")
        await world.settle()
        assert not await runs(world, "p2")

        await world.delete_pod("p1")
        await world.settle(60)
        assert await runs(world, "p2")

    play(scenario)


@pytest.mark.parametrize("shareable", [True, False])
def test_a_claim_that_is_deleted_just_before_it_is_reserved_for_a_pod_on_its_node(
    play: Any, shareable: bool
) -> None:
    async def scenario(world: World) -> None:
        deleted = False

        def delete_first(call: Call) -> None:
            nonlocal deleted
            if call.resource == BUILTIN_CLAIMS and call.subresource == "status" and not deleted:
                deleted = True
                world.server.delete(BUILTIN_CLAIMS, "common", "default")

        await world.add_node("a", devices=1)
        await world.add_class(shareable=shareable)
        await world.add_claim("common")
        world.start_parley(FaultClient(world.server.client(), before=delete_first))
        await world.settle()
        await world.add_pod("p1", claims=["common"], nodeName="a")
        await world.settle(60)
        assert deleted
        assert await runs(world, "p1")
        assert [pod.name for holding in world.ledger for pod in holding.pods.values()] == ["p1"]

    play(scenario)
