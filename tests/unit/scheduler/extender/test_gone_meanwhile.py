"""Nothing is remembered of a pod that goes while a call about it, or its reconciliation, is under way."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.extender.bindings import KilledError, begin
from tests.unit.scheduler.held_watch import HeldWatch
from tests.unit.scheduler.shelf import ShelfDriver

from parley.api.resources import PODS
from parley.kube.client import Call, Client, OutcomeUnknown
from parley.scheduler.attempts import PATIENCE
from parley.scheduler.extender.binding import MOST_BINDS, UNSEEN_SECONDS
from parley.simulate.extender_calls import ExtenderUnavailable

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

AWAY = "parley-away"


class SlowToChange(Client):
    """No binding and no read of a pod is answered, and changes of pods take three seconds. `changing` is set when
    one begins."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.changing = asyncio.Event()

    async def request(self, call: Call) -> bytes:
        if call.subresource == "binding" or (call.resource == PODS and call.verb == "get"):
            raise OutcomeUnknown(f"{call}: connection lost")
        if call.resource == PODS and call.verb == "patch":
            self.changing.set()
            await asyncio.sleep(3)
        return await super().request(call)


def test_nothing_is_remembered_of_a_pod_that_goes_while_its_binding_is_voided(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 1, SlowToChange(world.server.client()))
        await world.settle(5)
        await world.add_pod("p", "shelf")
        await asyncio.sleep(1)
        await world.force_delete("p")
        await world.settle()
        assert world.controller is not None
        assert world.controller.extender is not None
        assert world.controller.extender.entries == 0

    play(scenario)


def test_nothing_is_remembered_of_a_pod_that_goes_while_it_is_relieved_of_what_it_holds(play: Any) -> None:
    """An earlier leader allocated for it, and may have posted its binding."""

    async def scenario(world: World) -> None:
        def die(call: Call) -> None:
            if call.subresource == "binding":
                raise KilledError

        shelf = await begin(world, 1, FaultClient(world.server.client(), before=die))
        await world.settle(2)
        await world.add_pod("p", "shelf", schedulerName=AWAY)
        await world.settle(2)
        asked = await world.question("p", "n0")
        uid = asked["Pod"]["metadata"]["uid"]
        bind = {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "n0"}
        with pytest.raises(ExtenderUnavailable):
            await world.ask("bind", bind)
        client = SlowToChange(world.server.client())
        world.start_parley(client, drivers=[ShelfDriver(shelf)])
        await asyncio.sleep(10)  # the scheduler is made to try the pod again
        client.changing.clear()
        async with asyncio.timeout(2 * PATIENCE.first):
            await client.changing.wait()
        await world.force_delete("p")
        await world.settle()
        assert len(world.ledger) == 0
        assert world.controller is not None
        assert world.controller.extender is not None
        assert world.controller.extender.entries == 0

    play(scenario)


def test_binds_of_pods_that_are_gone_do_not_keep_others_waiting(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 1)
        await world.settle(2)
        gone = {"PodNamespace": "default", "PodUID": "gone", "Node": "n0"}
        binds = [asyncio.create_task(world.ask("bind", {**gone, "PodName": f"p{i}"})) for i in range(MOST_BINDS)]
        await asyncio.sleep(1)
        await world.add_pod("p", "shelf")
        await asyncio.sleep(UNSEEN_SECONDS + 5)
        assert {task.done() and task.result()["Error"] for task in binds} == {"the pod is gone"}
        assert await world.node_of("p") == "n0"

    play(scenario)


def test_a_bind_waits_for_a_pod_that_the_watch_shows_late(play: Any) -> None:
    async def scenario(world: World) -> None:
        client = HeldWatch(world.server.client(), PODS)
        await begin(world, 1, client)
        await world.settle(2)
        client.open.clear()
        await world.add_pod("p", "shelf")
        await asyncio.sleep(UNSEEN_SECONDS + 10)
        assert await world.node_of("p") == ""
        client.open.set()
        await asyncio.sleep(1)
        assert world.calls.failed_binds == []
        assert await world.node_of("p") == "n0"

    play(scenario)
