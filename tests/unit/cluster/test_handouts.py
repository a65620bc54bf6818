"""The watch over handouts sees what it is there for, and lets pass what is no fault."""

from typing import Any

import pytest
from tests.cluster.handouts import nothing_handed_out_twice

from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.mirror import allocation_body, consumer
from parley.kube.client import Client
from parley.kube.memory import MemoryServer
from parley.sdk import Allocation, Device, PodReference

THE_DEVICE = Allocation((Device("node-a", "gpu-0"),), {"devices": [{"pool": "node-a", "device": "gpu-0"}]})


async def hand_out(client: Client, name: str, request: str = "exclusive") -> None:
    """A pod of that name, and a claim of the same name that gives it the device."""
    container = {"name": "main", "image": "none"}
    pod = await client.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]}}, "team")
    exactly = {"deviceClassName": "being-negotiated.parley.dev"}
    spec = {"devices": {"requests": [{"name": request, "exactly": exactly}]}}
    claim = await client.create(BUILTIN_CLAIMS, {"metadata": {"name": name}, "spec": spec}, "team")
    status: dict[str, Any] = {
        "allocation": allocation_body(
            claim, "device.parley.dev", THE_DEVICE, ["node-a"], "2026-01-01T00:00:00Z", node_part=True
        ),
        "reservedFor": [consumer(PodReference("team", name, pod.metadata.uid))],
    }
    await client.patch(BUILTIN_CLAIMS, name, {"status": status}, "team", subresource="status")


async def test_a_device_of_two_living_pods_is_a_fault() -> None:
    client = MemoryServer().client()

    async def hand_out_twice() -> None:
        async with nothing_handed_out_twice(client):
            await hand_out(client, "first")
            await hand_out(client, "second")

    with pytest.raises(AssertionError, match=r"node-a/gpu-0 was given to .*team/second"):
        await hand_out_twice()


async def test_a_device_of_a_pod_that_is_done_may_be_handed_out_though_its_claim_still_shows_it() -> None:
    client = MemoryServer().client()

    async with nothing_handed_out_twice(client):
        await hand_out(client, "first")
        await client.patch(PODS, "first", {"status": {"phase": "Succeeded"}}, "team", subresource="status")
        await hand_out(client, "second")


async def test_shareable_claims_are_no_fault() -> None:
    client = MemoryServer().client()

    async with nothing_handed_out_twice(client):
        await hand_out(client, "first", "shareable")
        await hand_out(client, "second", "shareable")
