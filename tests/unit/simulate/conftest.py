"""An API server in memory in which a test plays everybody whom the model under test does not play."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS, NODES, PODS
from parley.api.selectors import node_selector
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.kube.memory import MemoryServer
from parley.simulate.cluster import loop_clock
from parley.simulate.virtual_time import run

Model = Callable[[Client, Clock], Any]
Story = Callable[["World"], Awaitable[None]]
Alone = Callable[[Model, Story], None]


class World:
    """What a test does to the API, in the namespace `team`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def settle(self) -> None:
        """Let everybody react."""
        await asyncio.sleep(30)

    async def node(self, name: str, cpu: str = "4") -> None:
        labels = {"kubernetes.io/hostname": name}
        status = {"allocatable": {"cpu": cpu, "pods": "10"}}
        await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})

    async def pod(self, name: str, claims: Sequence[str] = (), template: str = "", **spec: Any) -> Pod:
        entries: list[dict[str, str]] = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        if template:
            entries.append({"name": "entry", "resourceClaimTemplateName": template})
        containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
        body = {"metadata": {"name": name}, "spec": {"containers": containers, "resourceClaims": entries, **spec}}
        return await self.client.create(PODS, body, "team")

    async def claim(self, name: str, **meta: Any) -> BuiltinClaim:
        request = {"name": "shareable", "exactly": {"deviceClassName": "being-negotiated.parley.dev"}}
        body = {"metadata": {"name": name, **meta}, "spec": {"devices": {"requests": [request]}}}
        return await self.client.create(BUILTIN_CLAIMS, body, "team")

    async def allocate(self, name: str, *nodes: str, pods: Sequence[Pod] = (), conditions: bool = False) -> None:
        result: dict[str, Any] = {"request": "shareable", "driver": "d.dev", "pool": "p", "device": "x"}
        if conditions:
            result |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["declined"]}
        users = [{"resource": "pods", "name": p.metadata.name, "uid": p.metadata.uid} for p in pods]
        allocation = {"devices": {"results": [result]}, "nodeSelector": node_selector(nodes)}
        await self.claim_status(name, {"allocation": allocation, "reservedFor": users})

    async def answer(self, name: str, condition: str) -> None:
        """End the offer of a claim."""
        conditions = [{"type": condition, "status": "True", "reason": "R", "message": "", **_TIME}]
        device = {"driver": "d.dev", "pool": "p", "device": "x", "conditions": conditions}
        await self.claim_status(name, {"devices": [device]})

    async def claim_status(self, name: str, status: Mapping[str, Any]) -> None:
        await self.client.patch(BUILTIN_CLAIMS, name, {"status": status}, "team", subresource="status")

    async def pod_status(self, name: str, status: Mapping[str, Any]) -> None:
        await self.client.patch(PODS, name, {"status": status}, "team", subresource="status")

    async def the_pod(self, name: str) -> Pod:
        return await self.client.get(PODS, name, "team")

    async def the_claim(self, name: str) -> BuiltinClaim:
        return await self.client.get(BUILTIN_CLAIMS, name, "team")

    async def claims(self) -> list[BuiltinClaim]:
        return list((await self.client.list(BUILTIN_CLAIMS, "team")).items)


_TIME = {"lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.fixture
def alone() -> Alone:
    """Run one model beside a story, in virtual time."""

    def alone(model: Model, story: Story) -> None:
        async def both() -> None:
            client = MemoryServer().client()
            running = asyncio.create_task(model(client, loop_clock()).run())
            await story(World(client))
            assert not running.done()
            running.cancel()

        run(both())

    return alone
