"""A world of the second scheduler with shelves, and what is recorded for its pods."""

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.faults import FaultClient
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.client import Call, Client

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


T = TypeVar("T")


class KilledError(BaseException):
    """The process is gone."""


async def begin(world: World, nodes: int = 2, client: Any = None, **behaviour: Any) -> Behaviour:
    """Nodes with a shelf of one place each."""
    shelf = Behaviour(**{"other": 1, **behaviour})
    for i in range(nodes):
        await world.add_node(f"n{i}")
    await add_shelf_class(world)
    world.start_parley(client, drivers=[ShelfDriver(shelf)])
    return shelf


async def recorded_for(world: World, pod: Pod) -> list[bool]:
    """Whether each of the pod's claims is allocated and reserved for it."""
    names = [s.resource_claim_name for s in pod.status.resource_claim_statuses]
    mirrors = [await world.mirror(str(name)) for name in names]
    return [
        m is not None
        and m.status.allocation is not None
        and pod.metadata.uid in {user.uid for user in m.status.reserved_for}
        for m in mirrors
    ]


def writes_of(client: FaultClient) -> list[str]:
    writing = {"create", "patch", "delete"}
    return [
        f"{call.verb} {call.resource.plural}{'/' if call.subresource else ''}{call.subresource}"
        for call in client.calls
        if call.verb in writing
    ]


class SlowRecords(Client):
    """An API server that takes its time for the first record of an allocation."""

    def __init__(self, client: Any, seconds: float) -> None:
        super().__init__(client)
        self.seconds = seconds

    async def request(self, call: Call) -> bytes:
        if call.resource == BUILTIN_CLAIMS and call.subresource == "status":
            seconds, self.seconds = self.seconds, 0.0
            await asyncio.sleep(seconds)
        return await super().request(call)
