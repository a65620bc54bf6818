# ruff: noqa: ARG002, N802 - the protocol gives the names, and arguments that not every answer needs
"""Tells the kubelet how the devices of one driver are, which shows it in the status of the pods that use them.

The driver is asked every few seconds; that is how a device that vanished is noticed. The kubelet hears the whole
list when it connects, at every change, and again before what it knows expires; when a plugin of a rolling update
leaves, it forgets everything, and the other plugin's next list puts that right. A driver that cannot tell makes
its devices' health unknown. Served as v1 (kubelets from 1.37) and v1alpha1.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import structlog

from parley_kubelet.hooks import Condition, Health
from parley_kubelet.preparation import Preparation
from parley_kubelet.proto.dra_health_v1_pb2_grpc import DRAResourceHealthServicer as V1Servicer
from parley_kubelet.proto.dra_health_v1alpha1_pb2_grpc import DRAResourceHealthServicer as V1Alpha1Servicer

REPEAT: Final = 5.0
"""Seconds after which the kubelet is told again."""

EXPIRES: Final = 30
"""Seconds after which the kubelet takes a health that was not told again for unknown."""

LIMIT: Final = 25.0
"""Seconds for the driver's answer."""

LONGEST: Final = 1024
"""Bytes of a message that the kubelet keeps."""

log = structlog.get_logger(__name__)


class HealthMonitor:
    """Asks one driver; `on_change` is called when the answer differs from the one before."""

    def __init__(self, preparation: Preparation, on_change: Callable[[], None] = lambda: None) -> None:
        self._preparation = preparation
        self._driver = preparation.driver
        self._on_change = on_change
        self._report: tuple[Health, ...] | None = None
        self._news = asyncio.Condition()
        self._ended = False
        self._fault = ""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(self._driver.health_seconds)

    async def ask(self) -> None:
        """Ask once, and tell all streams if something changed."""
        report = await self._asked()
        changed = report != self._report
        if changed:
            self._log(report)
        async with self._news:
            self._report = report
            if changed:
                self._news.notify_all()
        if changed:
            self._on_change()

    async def end(self) -> None:
        """End all streams."""
        async with self._news:
            self._ended = True
            self._news.notify_all()

    async def reports(self) -> AsyncIterator[Sequence[Health]]:
        """What the kubelet is to be told, as it becomes due, until `end`."""
        while not self._ended:
            if self._report is not None:
                yield self._report
            async with self._news:
                if self._ended:
                    return
                try:
                    await asyncio.wait_for(self._news.wait(), REPEAT)
                except TimeoutError:
                    continue

    async def _asked(self) -> tuple[Health, ...]:
        try:
            async with asyncio.timeout(LIMIT):
                found = await self._driver.health(await self._preparation.held())
        except Exception as error:
            self._cannot_tell(str(error) or f"no answer within {LIMIT:g} s", error)
            message = f"{self._driver.name} cannot tell: {self._fault}"
            return tuple(Health(health.device, Condition.UNKNOWN, message) for health in self._report or ())
        self._fault = ""
        return tuple(sorted(found, key=lambda health: health.device))

    def _cannot_tell(self, why: str, error: Exception) -> None:
        if why != self._fault:
            log.warning("health is not known", driver=self._driver.name, reason=why, kind=type(error).__name__)
        self._fault = why

    def _log(self, report: Sequence[Health]) -> None:
        before = {health.device: health.condition for health in self._report or ()}
        for health in report:
            was = before.get(health.device)
            if health.condition is not was and (was or health.condition is Condition.UNHEALTHY):
                log.warning(
                    "health of a device changed",
                    driver=self._driver.name,
                    device=f"{health.device.pool}/{health.device.device}",
                    health=health.condition.name.lower(),
                    reason=health.message,
                )


class HealthService(V1Servicer, V1Alpha1Servicer):
    """The service in the messages of one `version`: `dra_health_v1_pb2` for kubelets from 1.37,
    `dra_health_v1alpha1_pb2` for older ones."""

    def __init__(self, monitor: HealthMonitor, version: Any) -> None:
        self._monitor = monitor
        self._version = version

    async def NodeWatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """All devices, again and again."""
        async for report in self._monitor.reports():
            yield _response(self._version, report)


def _response(version: Any, report: Sequence[Health]) -> Any:
    """In the messages of that version, which has the same fields as the other."""
    return version.NodeWatchResourcesResponse(
        devices=[
            version.DeviceHealth(
                device=version.DeviceIdentifier(pool_name=health.device.pool, device_name=health.device.device),
                health=health.condition.value,
                last_updated_time=int(health.checked),
                health_check_timeout_seconds=EXPIRES,
                message=health.message.encode()[:LONGEST].decode(errors="ignore"),
            )
            for health in report
        ]
    )
