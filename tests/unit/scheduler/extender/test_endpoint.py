"""The EndpointSlice by which a Service leads to the controller that leads, on an API server in memory."""

import asyncio
from typing import Any

import pytest
from tests.unit.kube.tasks import beside_the_test

from parley.api.resources import ENDPOINT_SLICES, SERVICES
from parley.kube.client import NotFound
from parley.kube.memory import MemoryServer
from parley.scheduler.extender.endpoint import LeaderEndpoint, ServiceAddress

pytestmark = pytest.mark.looptime

NAMESPACE, SERVICE, NAME = "parley-system", "parley-extender", "parley-extender-leader"
MINUTES = 300.0
"""Longer than anything pauses."""


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


async def add_service(server: MemoryServer) -> str:
    body = {"metadata": {"name": SERVICE}, "spec": {"ports": [{"name": "extender", "port": 8443}]}}
    made = await server.client().create(SERVICES, body, NAMESPACE)
    return made.metadata.uid


def leader(server: MemoryServer, ip: str, port: int = 8443) -> LeaderEndpoint:
    return LeaderEndpoint(server.client(), NAMESPACE, ServiceAddress(SERVICE, ip, port))


async def shown(server: MemoryServer) -> dict[str, Any]:
    return await server.client().get(ENDPOINT_SLICES.untyped(), NAME, NAMESPACE)


def addresses(found: dict[str, Any]) -> list[str]:
    return [address for one in found["endpoints"] for address in one["addresses"]]


async def test_a_leader_is_reached_by_the_service_and_its_slice_goes_with_it(server: MemoryServer) -> None:
    uid = await add_service(server)
    async with beside_the_test() as start:
        start(leader(server, "10.0.0.1").run())
        await asyncio.sleep(1)
        found = await shown(server)

    assert found["addressType"] == "IPv4"
    assert found["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]
    assert found["ports"] == [{"name": "extender", "port": 8443, "protocol": "TCP"}]
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == SERVICE
    owner = {"apiVersion": "v1", "kind": "Service", "name": SERVICE, "uid": uid}
    assert found["metadata"]["ownerReferences"] == [owner]


async def test_the_next_leader_takes_the_service_over_also_with_another_family(server: MemoryServer) -> None:
    await add_service(server)
    for ip, family in (("10.0.0.1", "IPv4"), ("10.0.0.2", "IPv4"), ("fd00::2", "IPv6")):
        async with beside_the_test() as start:
            start(leader(server, ip).run())
            await asyncio.sleep(1)
            found = await shown(server)
        assert (addresses(found), found["addressType"]) == ([ip], family)


async def test_what_somebody_changes_or_deletes_is_put_right(server: MemoryServer) -> None:
    await add_service(server)
    client = server.client()
    async with beside_the_test() as start:
        start(leader(server, "10.0.0.1").run())
        await asyncio.sleep(1)
        stolen = {"endpoints": [{"addresses": ["10.6.6.6"], "conditions": {"ready": True}}]}
        await client.patch(ENDPOINT_SLICES, NAME, stolen, NAMESPACE)
        await asyncio.sleep(1)
        assert addresses(await shown(server)) == ["10.0.0.1"]
        await client.delete(ENDPOINT_SLICES, NAME, NAMESPACE)
        await asyncio.sleep(1)
        assert addresses(await shown(server)) == ["10.0.0.1"]


async def test_without_its_service_it_waits_and_writes_nothing(server: MemoryServer) -> None:
    async with beside_the_test() as start:
        start(leader(server, "10.0.0.1").run())
        await asyncio.sleep(MINUTES)
        with pytest.raises(NotFound):
            await shown(server)
        await add_service(server)
        await asyncio.sleep(MINUTES)
        assert addresses(await shown(server)) == ["10.0.0.1"]


async def test_a_slice_that_is_right_is_not_written_again(server: MemoryServer) -> None:
    await add_service(server)
    async with beside_the_test() as start:
        start(leader(server, "10.0.0.1").run())
        await asyncio.sleep(1)
        before = (await shown(server))["metadata"]["resourceVersion"]
    async with beside_the_test() as start:
        start(leader(server, "10.0.0.1").run())
        await asyncio.sleep(MINUTES)
        assert (await shown(server))["metadata"]["resourceVersion"] == before
