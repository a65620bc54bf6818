"""A pod's claims were offered, the scheduler chose, and the controller went after it had allocated one of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.faults import FaultClient

from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.client import Call, ServerError

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


async def half_allocated(world: World, *nodes: str) -> None:
    """Pod "p" wants two devices of one node; the controller is gone when one is allocated."""
    done = 0

    def only_one(call: Call) -> None:
        nonlocal done
        status = call.body.get("status", {}) if call.verb == "patch" and call.resource == BUILTIN_CLAIMS else {}
        if status.get("devices"):
            done += 1
            if done > 1:
                raise ServerError(500, "InternalError", "etcdserver: request timed out")

    for node in nodes:
        await world.add_node(node, devices=2)
    await world.add_class("exact", placement="Exact")
    await world.add_class("gpu")
    await world.add_template("offered", "exact")
    await world.add_template("one")
    world.start_parley(FaultClient(world.server.client(), before=only_one))
    await world.add_pod("p", "offered", "offered")
    await world.settle(5)
    await world.crash()
    assert await world.node_of("p") == ""
    assert sorted(len(mirror.status.devices) for mirror in await world.mirrors()) == [0, 1]


def test_the_next_leader_allocates_the_other_where_the_first_is(play: Play) -> None:
    async def scenario(world: World) -> None:
        await half_allocated(world, "a", "b")
        world.start_parley()
        await world.settle(30)
        node = await world.node_of("p")
        assert node
        assert await world.devices() == {(node, "gpu-0"): 1, (node, "gpu-1"): 1}

    play(scenario)


def test_where_nothing_is_left_for_it_the_pod_is_offered_another_node(play: Play) -> None:
    async def scenario(world: World) -> None:
        await half_allocated(world, "a")
        await world.add_node("b", devices=2)
        world.start_parley()
        await world.add_pod("faster", "one", nodeName="a")
        await world.settle(60)
        assert await world.node_of("p") in ("a", "b")
        assert set((await world.devices()).values()) == {1}

    play(scenario)
