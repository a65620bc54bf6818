"""A fake kubelet on the sockets of a plugin: registers it, calls its DRA service, streams its health."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio

from parley.api.builtin import BuiltinClaim
from parley_kubelet.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
)
from parley_kubelet.proto import dra_v1_pb2 as dra
from parley_kubelet.proto import registration_v1_pb2 as registration
from parley_kubelet.proto.dra_v1_pb2_grpc import DRAPluginStub
from parley_kubelet.proto.registration_v1_pb2_grpc import RegistrationStub

LIMIT = 10.0
"""Seconds for one call; the real kubelet waits 45."""


_HEALTH: Mapping[str, tuple[Any, Any]] = {
    "v1": (dra_health_v1_pb2, dra_health_v1_pb2_grpc),
    "v1alpha1": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc),
}


class Kubelet:
    """A fake kubelet: registers the plugin behind a registration socket, and calls it."""

    def __init__(self, registration_socket: Path) -> None:
        self._registration_channel = grpc.aio.insecure_channel(f"unix:{registration_socket}")
        self._registration = RegistrationStub(self._registration_channel)
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        """Register the plugin. Raises grpc.aio.AioRpcError if it does not answer."""
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
        """Notify the plugin of the result of its registration."""
        status = registration.RegistrationStatus(plugin_registered=registered, error=error)
        await self._registration.NotifyRegistrationStatus(status, timeout=LIMIT)

    async def prepare(self, *claims: BuiltinClaim) -> Mapping[str, Any]:
        """The answers (NodePrepareResourceResponse) by claim name."""
        request = dra.NodePrepareResourcesRequest(claims=map(self._message, claims))
        answer = await self._plugin.NodePrepareResources(request, timeout=LIMIT)
        return {claim.metadata.name: answer.claims[claim.metadata.uid] for claim in claims}

    async def unprepare(self, *claims: BuiltinClaim) -> Mapping[str, str]:
        """The errors by claim name, "" where there is none."""
        request = dra.NodeUnprepareResourcesRequest(claims=map(self._message, claims))
        answer = await self._plugin.NodeUnprepareResources(request, timeout=LIMIT)
        return {claim.metadata.name: answer.claims[claim.metadata.uid].error for claim in claims}

    async def health(self, version: str = "v1") -> AsyncIterator[Mapping[str, tuple[str, str]]]:
        """Yields each health report of the plugin: health and message by pool/device."""
        messages, stubs = _HEALTH[version]
        request = messages.NodeWatchResourcesRequest()
        async for response in stubs.DRAResourceHealthStub(self._channel).NodeWatchResources(request):
            yield {
                f"{device.device.pool_name}/{device.device.device_name}": (
                    messages.HealthStatus.Name(device.health),
                    device.message,
                )
                for device in response.devices
            }

    def _message(self, claim: BuiltinClaim) -> Any:
        meta = claim.metadata
        return dra.Claim(namespace=meta.namespace, name=meta.name, uid=meta.uid)


async def until(condition: Callable[[], bool], limit: float = 20.0) -> None:
    """Wait until a condition outside of this process's tasks holds. Raises TimeoutError after `limit` seconds."""
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110 - files and other processes set no event
            await asyncio.sleep(0.02)
