"""Answers of the API server that are older than what the cache shows when they arrive."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.trouble import TroubleClient
from tests.unit.scheduler.conftest import NAMESPACE

from parley.api.resources import CLAIMS, PODS
from parley.control.objects.mirror import consumer
from parley.control.objects.pod import reference
from parley.kube.client import Call
from parley.simulate.status_writes import patch_claim

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


class SlowReads(TroubleClient):
    """Between the read of a pod and its answer, `meanwhile` happens, once."""

    def __init__(self, world: World, meanwhile: Callable[[], Any]) -> None:
        super().__init__(world.server.client(), random.Random(1))
        self._meanwhile: Callable[[], Any] | None = meanwhile

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.verb == "get" and call.resource == PODS and (happens := self._meanwhile) is not None:
            self._meanwhile = None
            await happens()
            await asyncio.sleep(1)
        return answer


def test_a_pod_that_is_bound_while_it_is_read_keeps_claims_that_its_scheduler_has_changed(play: Play) -> None:
    """The scheduler got no answer to its binding, took back its reservation, and got it again."""

    async def scenario(world: World) -> None:
        async def bind() -> None:
            pod = await world.pod("p")
            binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "a"}}
            await world.client.create_subresource(PODS, "p", "binding", binding, NAMESPACE)
            (mirror,) = [one for one in await world.mirrors() if one.metadata.name != "disk"]
            mirror = await patch_claim(world.client, mirror, {"reservedFor": []})
            await patch_claim(world.client, mirror, {"reservedFor": [consumer(reference(pod))]})

        await world.add_node("a", 2)
        await world.add_class()
        await world.add_template("one")
        await world.add_claim("disk")
        await world.add_pod("p", "one", claims=["disk"], schedulerName="quiet")
        client = SlowReads(world, bind)
        world.start_parley(client)
        await world.settle(5)
        client.hold(PODS, 60)
        await world.client.patch(CLAIMS, "disk", {"metadata": {"finalizers": None}}, NAMESPACE)
        await world.client.delete(CLAIMS, "disk", NAMESPACE)
        await world.settle(20)
        assert await world.node_of("p") == "a"
        (mirror,) = [one for one in await world.mirrors() if one.metadata.name != "disk"]
        assert mirror.status.allocation is not None
        await world.settle(60)
        assert (await world.mirrors())[0].status.allocation is not None

    play(scenario)
