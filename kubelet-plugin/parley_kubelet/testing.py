"""Plays the parts around the plugin in tests: the kubelet on the sockets, the controller in a claim's status.

    async with Kubelet(registration_socket) as kubelet:
        answers = await kubelet.prepare(claim)

What a real kubelet and container runtime do with the answers is not played here.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio

from parley.api.builtin import BuiltinClaim
from parley.api.names import DEVICE_CLASS, EXCLUSIVE_REQUEST
from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.client import Client
from parley_kubelet.configuration import DEFAULT_DRIVER
from parley_kubelet.handle import PLACEHOLDER
from parley_kubelet.proto import dra_v1_pb2 as dra
from parley_kubelet.proto import registration_v1_pb2 as registration
from parley_kubelet.proto.dra_v1_pb2_grpc import DRAPluginStub
from parley_kubelet.proto.registration_v1_pb2_grpc import RegistrationStub

LIMIT = 10.0
"""Seconds for one call; the real kubelet waits 45."""


class Kubelet:
    """The kubelet as the plugin meets it: it registers the plugin behind a socket and then calls it."""

    def __init__(self, registration_socket: Path) -> None:
        self._registration_channel = grpc.aio.insecure_channel(f"unix:{registration_socket}")
        self._registration = RegistrationStub(self._registration_channel)
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        """Register the plugin. Raises grpc.aio.AioRpcError if nobody answers."""
        self.info = await self._registration.GetInfo(registration.InfoRequest(), timeout=LIMIT)
        await self.notify(registered=True)
        self._channel = grpc.aio.insecure_channel(f"unix:{self.info.endpoint}")
        self._plugin = DRAPluginStub(self._channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._registration_channel.close()
        if self._channel is not None:
            await self._channel.close()

    async def notify(self, *, registered: bool, error: str = "") -> None:
        """Tell the plugin what became of its registration."""
        status = registration.RegistrationStatus(plugin_registered=registered, error=error)
        await self._registration.NotifyRegistrationStatus(status, timeout=LIMIT)

    async def prepare(self, *claims: BuiltinClaim) -> Mapping[str, dra.NodePrepareResourceResponse]:
        """The answers by claim name."""
        request = dra.NodePrepareResourcesRequest(claims=map(_message, claims))
        answer = await self._plugin.NodePrepareResources(request, timeout=LIMIT)
        return {claim.metadata.name: answer.claims[claim.metadata.uid] for claim in claims}

    async def unprepare(self, *claims: BuiltinClaim) -> Mapping[str, str]:
        """The errors by claim name, "" where there is none."""
        request = dra.NodeUnprepareResourcesRequest(claims=map(_message, claims))
        answer = await self._plugin.NodeUnprepareResources(request, timeout=LIMIT)
        return {claim.metadata.name: answer.claims[claim.metadata.uid].error for claim in claims}


def _message(claim: BuiltinClaim) -> dra.Claim:
    meta = claim.metadata
    return dra.Claim(namespace=meta.namespace, name=meta.name, uid=meta.uid)


async def until(condition: Callable[[], bool], limit: float = 20.0) -> None:
    """Wait for something outside of this process's tasks. Raises TimeoutError after `limit` seconds."""
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110 - files and other processes set no event
            await asyncio.sleep(0.02)


async def create_claim(
    client: Client, name: str, status: Mapping[str, Any] | None = None, namespace: str = "team"
) -> BuiltinClaim:
    """A built-in claim with that status, which the server checks as it would the controller's."""
    claim = await client.create(BUILTIN_CLAIMS, claim_body(name), namespace)
    if status is None:
        return claim
    return await client.patch(BUILTIN_CLAIMS, name, {"status": status}, namespace, subresource="status")


def claim_body(name: str) -> dict[str, Any]:
    """A built-in claim as Parley's mirror of a claim."""
    request = {"name": EXCLUSIVE_REQUEST, "exactly": {"deviceClassName": DEVICE_CLASS}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def allocated_status(
    node: str, devices: Sequence[str], *, shared: bool = False, driver: str = DEFAULT_DRIVER
) -> dict[str, Any]:
    """The claim's `status` after the controller allocated at once: each result names a device."""
    handle = _handle(node, devices, shared=shared)
    results = [_result(driver, node, device) for device in devices]
    config = {"source": "FromClaim", "requests": [EXCLUSIVE_REQUEST]}
    return {
        "allocation": {
            "devices": {
                "results": results,
                "config": [{**config, "opaque": {"driver": driver, "parameters": handle}}],
            }
        }
    }


def offered_status(
    node: str, devices: Sequence[str], *, shared: bool = False, driver: str = DEFAULT_DRIVER
) -> dict[str, Any]:
    """The claim's `status` after nodes were offered and devices found later; without `devices` not yet."""
    result = {**_result(driver, *PLACEHOLDER), "bindingConditions": ["parley.dev/allocated"]}
    status: dict[str, Any] = {
        "allocation": {
            "devices": {"results": [{**result, "bindingFailureConditions": ["parley.dev/declined"]}]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        }
    }
    if devices:
        pool, device = PLACEHOLDER
        data = _handle(node, devices, shared=shared)
        status["devices"] = [{"driver": driver, "pool": pool, "device": device, "data": data}]
    return status


def _result(driver: str, pool: str, device: str) -> dict[str, Any]:
    return {"request": EXCLUSIVE_REQUEST, "driver": driver, "pool": pool, "device": device}


def _handle(node: str, devices: Sequence[str], *, shared: bool) -> dict[str, Any]:
    return {"devices": [{"pool": node, "device": device} for device in devices], "shared": shared}
