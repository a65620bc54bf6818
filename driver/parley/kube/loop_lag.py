"""Measures the event loop's lag: one loop does all work of a process, so a task that blocks it delays all others.

Leases are renewed, probes answered and pods reconciled between the awaits of other tasks. A lag above a quarter of
a second is a bug of ours or of an embedded driver, unless the machine gave this process no CPU: so the CPU time of
the process itself is measured separately.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

log = structlog.get_logger(__name__)

EVERY = 0.1
"""Seconds between two measurements."""

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Seconds, for histograms of lags."""

WORTH_A_WARNING = 0.25
_WARN_EVERY = 30.0

Observe = Callable[[float, float], None]
"""Receives a lag, and the part of it in which the process itself used the CPU; both in seconds."""


class LoopLag:
    """Measures every 100 ms how late a timer fires, with less than 10 µs of CPU time each."""

    def __init__(
        self, observe: Observe, clock: Callable[[], float], cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._observe = observe
        self._clock = clock
        self._cpu = cpu
        self._warned = -_WARN_EVERY
        self._late = 0

    async def run(self) -> None:
        """Measures until cancelled."""
        while True:
            due, used = self._clock() + EVERY, self._cpu()
            await asyncio.sleep(EVERY)
            self.report(max(0.0, self._clock() - due), self._cpu() - used)

    def report(self, lag: float, used: float) -> None:
        """Reports that the loop was late, and the CPU time used, in seconds; logs that at most once in 30 s."""
        blocked = min(lag, used)
        self._observe(lag, blocked)
        if lag <= WORTH_A_WARNING:
            return
        self._late += 1
        now = self._clock()
        if now - self._warned >= _WARN_EVERY:
            seconds, busy = round(lag, 3), round(blocked, 3)
            log.warning("the event loop was late", seconds=seconds, busy=busy, times=self._late)
            self._warned, self._late = now, 0


@asynccontextmanager
async def watched(observe: Observe) -> AsyncIterator[None]:
    """Measures the running loop's lag within the block."""
    measuring = asyncio.create_task(LoopLag(observe, asyncio.get_running_loop().time).run())
    try:
        yield
    finally:
        measuring.cancel()
        with suppress(asyncio.CancelledError):
            await measuring
