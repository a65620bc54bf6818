"""The controller is killed at every write while claims reserve room, before and after the server did it.

What claims reserve on a node is never more than it has, by their records; the late big task fits, and whoever was
kept out runs in the end.
"""

import asyncio
from collections import Counter

import pytest
from tests.unit.kills import Death, Executioner, at_every_write
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.reserving import claim, disks, task

from parley.api.models import ResourceClaim
from parley.api.quantity import parse
from parley.api.resources import CLAIMS
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Client

CPUS = 8
"""Of each node."""


class Recorded:
    """What claims reserve by their records, in every state that the API shows. One that is being deleted reserves
    nothing while its data is removed."""

    def __init__(self, world: World) -> None:
        self.faults: list[str] = []
        self._claims: dict[str, ResourceClaim] = {}
        world.watch_claims(self._seen)

    def _seen(self, claim: ResourceClaim) -> None:
        self._claims[claim.metadata.uid] = claim
        total = Counter[str]()
        for one in self._claims.values():
            allocation = one.status.allocation if not one.metadata.deletion_timestamp else None
            if allocation is not None and allocation.reserve is not None:
                node = allocation.handles[0].devices[0].pool
                total[node] += int(parse(allocation.reserve.amounts["cpu"]))
        self.faults += [f"{cpus} on {node}" for node, cpus in total.items() if cpus > CPUS]


async def story(world: World) -> None:
    """Three claims want room that two nodes have for two; the one whose big task comes late keeps its own."""
    await disks(world, "a", "b")
    for name, cpus in (("build", "6"), ("other", "5"), ("third", "5")):
        await claim(world, name, {"cpu": cpus})
    await asyncio.gather(*(task(world, f"first-{name}", name, cpu="1") for name in ("build", "other")))
    await world.finish_pod("first-build")
    assert await task(world, "kept-out", "third", cpu="1") == ""
    assert await task(world, "late", "build", cpu="6") == await world.node_of("first-build")
    await world.finish_pod("first-other")
    await world.client.delete(CLAIMS, "other", "default")
    await world.settle()
    assert await world.node_of("kept-out") == await world.node_of("first-other")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_loses_no_reservation_and_makes_none_twice(play: Play, after: bool) -> None:
    def start(world: World, client: Client | None) -> asyncio.Task[None]:
        return world.start_parley(client, drivers=[WorkspaceDriver()])

    async def life(world: World, death: Death) -> int:
        recorded = Recorded(world)
        async with Executioner(world, lambda client: start(world, client), death) as executioner:
            await story(world)
        assert recorded.faults == []
        return executioner.writes

    at_every_write(play, life, after=after, at_least=10)
