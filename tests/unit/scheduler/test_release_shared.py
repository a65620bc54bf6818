"""Shared claims with pods that were deleted by force are free when each of those nodes has given its receipt."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import ready
from tests.unit.scheduler.releasing import one_device, records

from parley.api.names import CONDITION_RELEASING
from parley.drivers.tokens import TokensDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


def test_a_shared_claim_stays_with_its_other_pods(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, shareable=True)
        await world.add_claim("disk")
        await world.add_pod("old", claims=["disk"])
        await world.add_pod("other", claims=["disk"])
        await world.settle()
        await world.force_delete("old")
        await world.add_pod("third", claims=["disk"])
        await world.settle()
        assert await world.node_of("third") == "a"
        (record,) = await records(world)
        assert not record.status.allocation_cleared
        for name in ("other", "third"):
            await world.delete_pod(name)
        await world.settle()
        assert ready(await world.claim("disk")) == "WaitForFirstConsumer"
        assert await records(world) == []
        assert len(world.ledger) == 0

    play(scenario)


def test_the_last_pod_of_a_shared_claim_waits_for_what_an_earlier_one_left(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, shareable=True)
        await world.add_claim("disk")
        await world.add_pod("old", claims=["disk"])
        await world.add_pod("other", claims=["disk"])
        await world.settle()
        world.kubelets.stop("a")
        await world.force_delete("old")
        await world.settle()
        await world.finish_pod("other")
        await world.settle()
        assert ready(await world.claim("disk")) == "Releasing"
        world.kubelets.start("a")
        await world.settle()
        assert ready(await world.claim("disk")) == "WaitForFirstConsumer"

    play(scenario)


def test_no_node_answers_for_a_claim_that_others_use(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world, shareable=True)
        await world.add_claim("disk")
        for name in ("old", "last"):
            await world.add_pod(name, claims=["disk"])
        await world.settle()
        await world.force_delete("old")
        await world.settle()
        (first,) = await records(world)
        world.kubelets.stop("a")
        await world.force_delete("last")
        await world.settle()
        (record,) = await records(world)
        assert record.metadata.uid == first.metadata.uid
        assert record.status.allocation_cleared
        assert ready(await world.claim("disk")) == "Releasing"
        world.kubelets.start("a")
        await world.settle()
        assert ready(await world.claim("disk")) == "WaitForFirstConsumer"
        assert len(world.ledger) == 0

    play(scenario)


async def lost_on_two_nodes(world: World) -> None:
    """Pods a and b, on nodes of these names, shared a seat and were deleted by force; nothing is unprepared."""
    world.start_parley(drivers=[TokensDriver()])
    for name in ("a", "b"):
        await world.add_node(name)
    await world.add_class("seats", driverName=TokensDriver.name, parameters={"pool": 1}, shareable=True)
    await world.add_claim("seat", "seats")
    for name in ("a", "b"):
        await world.add_pod(name, claims=["seat"], nodeSelector={"kubernetes.io/hostname": name})
        await world.settle()
        world.kubelets.stop(name)
    for name in ("a", "b"):
        await world.force_delete(name)
    await world.settle()


@pytest.mark.parametrize("restarted", [False, True], ids=["the same controller", "another controller"])
@pytest.mark.parametrize("first", ["a", "b"])
def test_all_nodes_of_a_shared_claim_are_asked_at_once_and_waited_for(
    play: Play, first: str, restarted: bool
) -> None:
    async def restart_if_need_be(world: World) -> None:
        if restarted:
            await world.crash()
            world.start_parley(drivers=[TokensDriver()])
            await world.settle()

    async def scenario(world: World) -> None:
        await lost_on_two_nodes(world)
        assert [r.spec.node_name for r in await records(world) if r.status.allocation_cleared] == ["a", "b"]
        (condition,) = [c for c in (await world.claim("seat")).status.conditions if c.type == CONDITION_RELEASING]
        assert condition.message == (
            "pods that used it on nodes a, b were deleted by force, and the node plugins there have yet to "
            "confirm that it is not prepared any more: bring them back, or taint those that are shut down "
            "node.kubernetes.io/out-of-service"
        )
        await restart_if_need_be(world)
        (last,) = {"a", "b"} - {first}
        world.kubelets.start(first)
        await world.settle()
        await restart_if_need_be(world)
        claim = await world.claim("seat")
        (condition,) = [c for c in claim.status.conditions if c.type == CONDITION_RELEASING]
        assert ready(claim) == "Releasing"
        assert condition.message.startswith(f"a pod that used it on node {last} was deleted by force")
        assert [record.spec.node_name for record in await records(world)] == [last]
        world.kubelets.start(last)
        await world.settle()
        assert ready(await world.claim("seat")) == "WaitForFirstConsumer"
        assert await records(world) == []

    play(scenario)
