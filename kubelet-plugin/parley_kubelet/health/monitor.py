"""Monitors the health of one driver's devices for the kubelet, which shows it in the status of pods that use them.

The driver is polled every few seconds; so a device that vanished is noticed. The kubelet gets the whole list when
it connects, at every change, and again before the last one expires. When one plugin of a rolling update ends, the
kubelet forgets all health until the other plugin's next list. If the driver's health call fails, the health of its
devices is unknown.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import structlog

from parley.kube.cancelling import uncancelled
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.hooks import DeviceCondition, Health

REPEAT: Final = 5.0
"""Seconds after which health is sent to the kubelet again."""

LIMIT: Final = 25.0
"""Seconds for the driver's answer."""

log = structlog.get_logger(__name__)


class HealthMonitor:
    """Polls one driver; `on_change` is called when the answer differs from the one before."""

    def __init__(self, preparation: Preparation, on_change: Callable[[], None] = lambda: None) -> None:
        self._preparation = preparation
        self._driver = preparation.driver
        self._on_change = on_change
        self._report: tuple[Health, ...] | None = None
        self._changed_condition = asyncio.Condition()
        self._ended = False
        self._fault = ""

    async def run(self) -> None:
        """Poll the driver until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(self._driver.health_seconds)

    async def poll(self) -> None:
        """Poll once, and notify all streams if something changed."""
        report = await self._read_health()
        changed = report != self._report
        if changed:
            self._log(report)
        async with self._changed_condition:
            self._report = report
            if changed:
                self._changed_condition.notify_all()
        if changed:
            self._on_change()

    async def end(self) -> None:
        """End all streams."""
        async with self._changed_condition:
            self._ended = True
            self._changed_condition.notify_all()

    async def reports(self) -> AsyncIterator[Sequence[Health]]:
        """The messages for the kubelet, as they become due, until `end`."""
        while not self._ended:
            if self._report is not None:
                yield self._report
            async with self._changed_condition:
                if self._ended:
                    return
                try:
                    await asyncio.wait_for(self._changed_condition.wait(), REPEAT)
                except TimeoutError:
                    continue

    async def _read_health(self) -> tuple[Health, ...]:
        try:
            async with asyncio.timeout(LIMIT):
                held = await self._preparation.held()
                with uncancelled(self._driver.name):
                    found = await self._driver.health(held)
            report = tuple(sorted(found, key=lambda health: (health.device, health.condition.value)))
        except Exception as error:
            self._cannot_tell(str(error) or f"no answer within {LIMIT:g} s", error)
            message = f"{self._driver.name} failed to report health: {self._fault}"
            return tuple(Health(health.device, DeviceCondition.UNKNOWN, message) for health in self._report or ())
        self._fault = ""
        return report

    def _cannot_tell(self, why: str, error: Exception) -> None:
        if why != self._fault:
            log.warning("health is not known", driver=self._driver.name, reason=why, kind=type(error).__name__)
        self._fault = why

    def _log(self, report: Sequence[Health]) -> None:
        before = {health.device: health.condition for health in self._report or ()}
        for health in report:
            was = before.get(health.device)
            if health.condition is not was and (was or health.condition is DeviceCondition.UNHEALTHY):
                log.warning(
                    "health of a device changed",
                    driver=self._driver.name,
                    device=f"{health.device.pool}/{health.device.device}",
                    health=health.condition.name.lower(),
                    reason=health.message,
                )
