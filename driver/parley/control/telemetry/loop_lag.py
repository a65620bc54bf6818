"""How late the event loop is: one loop does all of a process's work, so what keeps it busy keeps all else waiting.

Leases are renewed, probes answered and pods judged between two awaits of something else. A lag above a quarter of
a second is a fault of ours or of an embedded driver, whatever anybody asked for, unless the machine gave this
process no processor: what the process computed itself meanwhile is counted apart.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from parley.control.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

EVERY = 0.1
"""Seconds between two looks."""

WORTH_A_WARNING = 0.25
_WARN_EVERY = 30.0


class LoopLag:
    """Looks every 100 ms how late it is to look: less than 10 µs of the processor's time for each look."""

    def __init__(
        self, metrics: Metrics, clock: Callable[[], float], cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._observe = metrics.loop_lag.observe
        self._observe_blocked = metrics.loop_blocked.observe
        self._clock = clock
        self._cpu = cpu
        self._warned = -_WARN_EVERY
        self._late = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due, used = self._clock() + EVERY, self._cpu()
            await asyncio.sleep(EVERY)
            self.saw(max(0.0, self._clock() - due), self._cpu() - used)

    def saw(self, lag: float, used: float) -> None:
        """The loop was so many seconds late, its thread computed for so many; logged, at most once in 30 s."""
        blocked = min(lag, used)
        self._observe(lag)
        self._observe_blocked(blocked)
        if lag <= WORTH_A_WARNING:
            return
        self._late += 1
        now = self._clock()
        if now - self._warned >= _WARN_EVERY:
            seconds, busy = round(lag, 3), round(blocked, 3)
            log.warning("the event loop was late", seconds=seconds, busy=busy, times=self._late)
            self._warned, self._late = now, 0


@asynccontextmanager
async def watched(metrics: Metrics) -> AsyncIterator[None]:
    """The running loop's lag is measured within the block."""
    measuring = asyncio.create_task(LoopLag(metrics, asyncio.get_running_loop().time).run())
    try:
        yield
    finally:
        measuring.cancel()
        with suppress(asyncio.CancelledError):
            await measuring
