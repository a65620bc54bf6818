# ruff: noqa: ARG002, N802 - the protocol gives the names, and arguments that not every answer needs
"""The gRPC edge to the kubelet: NodeWatchResources of DRAResourceHealth, v1 (kubelets from 1.37) and v1alpha1."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from parley_kubelet.health.monitor import HealthMonitor
from parley_kubelet.hooks import Health
from parley_kubelet.proto.dra_health_v1_pb2_grpc import DRAResourceHealthServicer as V1Servicer
from parley_kubelet.proto.dra_health_v1alpha1_pb2_grpc import DRAResourceHealthServicer as V1Alpha1Servicer

EXPIRES: Final = 30
"""Seconds after which the kubelet considers a device's health unknown unless it is sent again."""

LONGEST: Final = 1024
"""Bytes of a message that the kubelet keeps."""


class HealthService(V1Servicer, V1Alpha1Servicer):
    """The service in the messages of one `version`: `dra_health_v1_pb2` for kubelets from 1.37,
    `dra_health_v1alpha1_pb2` for older ones."""

    def __init__(self, monitor: HealthMonitor, version: Any) -> None:
        self._monitor = monitor
        self._version = version

    async def NodeWatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Streams the health of all devices, at every change and periodically."""
        async for report in self._monitor.reports():
            yield _response(self._version, report)


def _response(version: Any, report: Sequence[Health]) -> Any:
    """The report as a message of that version; both versions have the same fields."""
    return version.NodeWatchResourcesResponse(
        devices=[
            version.DeviceHealth(
                device=version.DeviceIdentifier(pool_name=health.device.pool, device_name=health.device.device),
                health=health.condition.value,
                last_updated_time=int(health.checked),
                health_check_timeout_seconds=EXPIRES,
                message=health.message.encode(errors="backslashreplace")[:LONGEST].decode(errors="ignore"),
            )
            for health in report
        ]
    )
