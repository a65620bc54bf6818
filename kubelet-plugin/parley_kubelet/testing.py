"""For tests of node drivers and of the plugin itself.

A driver's author calls the driver's hooks, and has them checked for what `parley_kubelet.hooks` promises:

    async def test_my_driver_keeps_its_promises() -> None:
        await check_node_driver(Scenario(make=MyDriver, claims=(one, two), left=lambda: sorted(folder.iterdir())))

The parts around the plugin are played: the kubelet on the sockets, the controller in a claim's status.

    async with Kubelet(registration_socket) as kubelet:
        answers = await kubelet.prepare(claim)

What a real kubelet and container runtime do with the answers is not played here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio

from parley.api.builtin import BuiltinClaim
from parley.api.names import DEVICE_CLASS, EXCLUSIVE_REQUEST
from parley.api.resources import BUILTIN_CLAIMS
from parley.api.selectors import node_selector
from parley.kube.client import Client
from parley_kubelet.configuration import DEFAULT_DRIVER
from parley_kubelet.names import PLACEHOLDER
from parley_kubelet.promises import Scenario, check_node_driver, node_claim
from parley_kubelet.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
)
from parley_kubelet.proto import registration_v1_pb2 as registration
from parley_kubelet.proto.registration_v1_pb2_grpc import RegistrationStub

__all__ = [
    "Kubelet",
    "Scenario",
    "allocated_status",
    "check_node_driver",
    "claim_body",
    "create_claim",
    "node_claim",
    "offered_status",
    "until",
]

LIMIT = 10.0
"""Seconds for one call; the real kubelet waits 45."""


_PREPARING: Mapping[str, tuple[Any, Any]] = {
    "v1": (dra_v1_pb2, dra_v1_pb2_grpc),
    "v1beta1": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc),
}
_HEALTH: Mapping[str, tuple[Any, Any]] = {
    "v1": (dra_health_v1_pb2, dra_health_v1_pb2_grpc),
    "v1alpha1": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc),
}


class Kubelet:
    """The kubelet as the plugin meets it: it registers the plugin behind a socket and then calls it.

    `version` is that of the DRA service which it calls: v1 or v1beta1.
    """

    def __init__(self, registration_socket: Path, version: str = "v1") -> None:
        self._messages, self._stubs = _PREPARING[version]
        self._registration_channel = grpc.aio.insecure_channel(f"unix:{registration_socket}")
        self._registration = RegistrationStub(self._registration_channel)
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        """Register the plugin. Raises grpc.aio.AioRpcError if nobody answers."""
        self.info = await self._registration.GetInfo(registration.InfoRequest(), timeout=LIMIT)
        await self.notify(registered=True)
        self._channel = grpc.aio.insecure_channel(f"unix:{self.info.endpoint}")
        self._plugin = self._stubs.DRAPluginStub(self._channel)
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

    async def prepare(self, *claims: BuiltinClaim) -> Mapping[str, Any]:
        """The answers (NodePrepareResourceResponse) by claim name."""
        request = self._messages.NodePrepareResourcesRequest(claims=map(self._message, claims))
        answer = await self._plugin.NodePrepareResources(request, timeout=LIMIT)
        return {claim.metadata.name: answer.claims[claim.metadata.uid] for claim in claims}

    async def unprepare(self, *claims: BuiltinClaim) -> Mapping[str, str]:
        """The errors by claim name, "" where there is none."""
        request = self._messages.NodeUnprepareResourcesRequest(claims=map(self._message, claims))
        answer = await self._plugin.NodeUnprepareResources(request, timeout=LIMIT)
        return {claim.metadata.name: answer.claims[claim.metadata.uid].error for claim in claims}

    async def health(self, version: str = "v1") -> AsyncIterator[Mapping[str, tuple[str, str]]]:
        """What the plugin tells of its devices, each time: health and message by pool/device."""
        messages, stubs = _HEALTH[version]
        request = messages.NodeWatchResourcesRequest()
        async for told in stubs.DRAResourceHealthStub(self._channel).NodeWatchResources(request):
            yield {
                f"{device.device.pool_name}/{device.device.device_name}": (
                    messages.HealthStatus.Name(device.health),
                    device.message,
                )
                for device in told.devices
            }

    def _message(self, claim: BuiltinClaim) -> Any:
        meta = claim.metadata
        return self._messages.Claim(namespace=meta.namespace, name=meta.name, uid=meta.uid)


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


_RESERVED = [{"resource": "pods", "name": "pod", "uid": "uid-of-pod"}]


def allocated_status(
    node: str,
    devices: Sequence[str],
    *,
    shared: bool = False,
    driver: str = DEFAULT_DRIVER,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The claim's `status` after the controller allocated at once: each result names a device, the handle is that
    of the device driver, or `data`."""
    handle = _handle(node, devices, shared=shared) if data is None else dict(data)
    results = [_result(driver, node, device) for device in devices] or [_result(driver, *PLACEHOLDER)]
    config = {"source": "FromClaim", "requests": [EXCLUSIVE_REQUEST]}
    return {
        "allocation": {
            "devices": {
                "results": results,
                "config": [{**config, "opaque": {"driver": driver, "parameters": handle}}],
            },
            "nodeSelector": node_selector([node]),
        },
        "reservedFor": _RESERVED,
    }


def offered_status(
    node: str, devices: Sequence[str], *, shared: bool = False, driver: str = DEFAULT_DRIVER
) -> dict[str, Any]:
    """The claim's `status` after nodes were offered and devices found later; without `devices` not yet."""
    result = {**_result(driver, *PLACEHOLDER), "bindingConditions": ["parley.dev/allocated"]}
    status: dict[str, Any] = {
        "allocation": {
            "devices": {"results": [{**result, "bindingFailureConditions": ["parley.dev/declined"]}]},
            "nodeSelector": node_selector(["another", node]),
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": _RESERVED,
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
