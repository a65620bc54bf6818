"""A nomination by the second scheduler itself, which has evicted pods on the node, is left to it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.containers import requesting
from tests.unit.scheduler.conftest import AWAY

from parley.api.resources import PODS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


def test_a_pod_keeps_its_nomination_while_its_scheduler_takes_its_time_after_evictions(play: Play) -> None:
    """Otherwise pods of lower priority get the CPU that the victims left."""

    async def scenario(world: World) -> None:
        for node in "ab":
            await world.add_node(node)
            await world.add_pod(f"weak-{node}", nodeName=node, priority=1, containers=requesting(cpu=8))
        await world.add_class()
        await world.add_template()
        world.start_parley()
        await world.settle(5)
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4), schedulerName=AWAY)
        await world.settle(5)

        async def preempt() -> list[str]:
            question = await world.question("urgent")
            meta = {node: {"Pods": [{"UID": "some"}], "NumPDBViolations": 0} for node in "ab"}
            asked = {"Pod": question["Pod"], "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
            return list((await world.ask("preempt", asked))["NodeNameToMetaVictims"])

        assert await preempt() == []
        await world.publish("b", ["gpu-0"])
        await world.settle(5)
        assert await preempt() == ["b"]
        nominated = {"status": {"nominatedNodeName": "b"}}
        await world.client.patch(PODS, "urgent", nominated, "default", subresource="status")
        await world.delete_pod("weak-b")
        await asyncio.sleep(9)
        assert (await world.pod("urgent")).status.nominated_node_name == "b"

    play(scenario)
