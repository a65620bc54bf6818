"""Nodes where the second scheduler could evict ordinary pods: it names them after it asked about the others."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.unit.scheduler.claim_preemption.preempting import begin, hold
from tests.unit.scheduler.conftest import AWAY
from tests.unit.scheduler.grump import APART, add_grump

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


def test_a_pod_is_evicted_for_its_claim_where_the_scheduler_could_evict_the_one_that_keeps_others_away(
    play: Play,
) -> None:
    """Until the scheduler says so, its silence about the node, on which the pod would fit, counts as a refusal."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=0, b=1)
        await hold(world, low=0)
        await add_grump(world, "b")
        await world.settle(5)
        await world.add_pod("urgent", "one", priority=10, schedulerName=AWAY, affinity=APART)
        await world.settle(5)
        whole = await world.question("urgent", "a")
        assert (await world.ask("filter", whole))["NodeNames"] == []
        await world.settle(60)
        assert evicted == []
        grump = {"Pods": [{"UID": (await world.pod("grump-b")).metadata.uid}], "NumPDBViolations": 0}
        question = {"Pod": whole["Pod"], "NodeNameToMetaVictims": {"b": grump}}
        assert (await world.ask("preempt", question))["NodeNameToMetaVictims"] == {}
        await world.settle(30)
        assert evicted == ["low"]

    play(scenario)
