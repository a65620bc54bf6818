"""The attached disk's driver in a process of its own: asked, and told to go, through API objects only.

Time is real here, since HTTP is: nothing waits for longer than it takes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from examples.attached.attached_driver import AttachedDriver
from tests.cluster.watching import until, until_one
from tests.unit.examples.conftest import SECONDS, Service

from parley.api.models import PodScheduling, ResourceClaim
from parley.api.names import DRIVERS_LABEL, STANDALONE
from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS, Resource
from parley.kube.client import Client
from parley.kube.memory import MemoryServer
from parley.sdk.standalone import StandaloneDriver

TEAM = "team"


class Cluster:
    """The controller's side, for one claim of one pod."""

    def __init__(self, service: Service) -> None:
        self.client: Client = MemoryServer().client()
        self._service = service

    async def prepare(self) -> None:
        parameters = {"fabric": self._service.url}
        await self._create(CLASSES, "disks", driverName=AttachedDriver.name, parameters=parameters)
        await self._create(CLAIMS, "scratch", spec={"resourceClassName": "disks", "parameters": {"sizeGiB": 10}})
        asked = {"name": "disk", "driverName": AttachedDriver.name, "resourceClaimName": "scratch"}
        spec = {"round": 1, "candidateNodes": ["node-9", "node-1", "node-2"], "claims": [asked]}
        await self._create(POD_SCHEDULINGS, "trainer", labels={DRIVERS_LABEL: STANDALONE}, spec=spec)

    async def _create(self, resource: Resource[Any], name: str, labels: Any = None, **more: Any) -> None:
        body = {"metadata": {"name": name, "labels": labels or {}}, **more}
        await self.client.create(resource, body, TEAM if resource.namespaced else None)

    async def select(self, node: str) -> None:
        await self.client.patch(POD_SCHEDULINGS, "trainer", {"spec": {"selectedNode": node}}, TEAM)

    async def answered(self) -> PodScheduling:
        return await until_one(
            self.client, POD_SCHEDULINGS, "trainer", lambda s: bool(s.status.claims), "is answered", namespace=TEAM
        )

    async def failed(self) -> PodScheduling:
        return await until_one(
            self.client,
            POD_SCHEDULINGS,
            "trainer",
            lambda s: any(entry.failure for entry in s.status.claims),
            "has a failure",
            namespace=TEAM,
        )

    async def told(self, words: str) -> ResourceClaim:
        """The claim, as soon as its condition says that."""
        return await until_one(
            self.client,
            CLAIMS,
            "scratch",
            lambda claim: any(words in condition.message for condition in claim.status.conditions),
            f"tells {words!r}",
            namespace=TEAM,
        )

    async def allocated(self) -> ResourceClaim:
        return await until_one(
            self.client,
            CLAIMS,
            "scratch",
            lambda c: c.status.allocation is not None,
            "is allocated",
            namespace=TEAM,
        )

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[None]:
        """The driver's process; leaving is its end, wherever it is."""
        running = asyncio.create_task(StandaloneDriver(self.client, AttachedDriver(interval=0.001)).run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_it_answers_attaches_over_a_restart_and_gives_back(service: Service) -> None:
    cluster = Cluster(service)
    await cluster.prepare()
    async with cluster.driver():
        (entry,) = (await cluster.answered()).status.claims
        assert entry.viable_nodes == ("node-1", "node-2")
        assert entry.reason == f"node-9: {service.url} cannot be reached from it"
        await cluster.select("node-1")
        await cluster.told("attaching to node node-1: 0 %")
    assert await service.volumes() != {}

    service.now += SECONDS
    async with cluster.driver():
        claim = await cluster.allocated()
        assert await service.volumes() == {claim.metadata.uid: "node-1"}
        await cluster.client.delete(POD_SCHEDULINGS, "trainer", TEAM)
        await cluster.client.delete(CLAIMS, "scratch", TEAM)
        await until(cluster.client, CLAIMS, lambda claims: not claims, "the claim is gone")
        assert await service.volumes() == {}


async def test_what_the_array_refuses_for_ever_is_told_as_permanent(service: Service) -> None:
    cluster = Cluster(service)
    await cluster.prepare()
    await service.ask("PUT", "/faults/node-2", {"message": "cable is gone", "permanent": True})
    async with cluster.driver():
        await cluster.answered()
        await cluster.select("node-2")
        await cluster.told("attaching")
        service.now += SECONDS
        (entry,) = (await cluster.failed()).status.claims
        assert entry.failure is not None
        words = "attaching to node node-2 failed: cable is gone"
        assert (entry.failure.message, entry.failure.permanent) == (words, True)
        assert await service.ask("GET", "/volumes") == []


async def test_an_attachment_that_nobody_wants_any_more_is_aborted_also_after_a_restart(service: Service) -> None:
    cluster = Cluster(service)
    await cluster.prepare()
    async with cluster.driver():
        await cluster.answered()
        await cluster.select("node-1")
        await cluster.told("attaching")
    await cluster.client.delete(POD_SCHEDULINGS, "trainer", TEAM)
    async with cluster.driver():
        await until_one(
            cluster.client, CLAIMS, "scratch", lambda c: not c.metadata.finalizers, "is let go", namespace=TEAM
        )
        assert await service.volumes() == {}
