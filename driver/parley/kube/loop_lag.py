"""How late the event loop is: one loop does all of a process's work, so what keeps it busy keeps all else waiting.

Leases are renewed, probes answered and pods judged between two awaits of something else. A lag above a quarter of
a second is a fault of ours or of a driver inside, whatever anybody asked for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

log = structlog.get_logger(__name__)

EVERY = 0.1
"""Seconds between two looks."""

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Seconds, for the histogram of lags."""

WORTH_A_WARNING = 0.25
_WARN_EVERY = 30.0

Observe = Callable[[float], None]
"""Takes one lag in seconds."""


class LoopLag:
    """Looks every 100 ms how late it is to look: less than 10 µs of the processor's time for each look."""

    def __init__(self, observe: Observe, clock: Callable[[], float]) -> None:
        self._observe = observe
        self._clock = clock
        self._warned = -_WARN_EVERY
        self._late = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due = self._clock() + EVERY
            await asyncio.sleep(EVERY)
            self.saw(max(0.0, self._clock() - due))

    def saw(self, lag: float) -> None:
        """The loop was so many seconds late; logged, at most once in 30 s."""
        self._observe(lag)
        if lag <= WORTH_A_WARNING:
            return
        self._late += 1
        now = self._clock()
        if now - self._warned >= _WARN_EVERY:
            log.warning("the event loop was late", seconds=round(lag, 3), times=self._late)
            self._warned, self._late = now, 0


@asynccontextmanager
async def watched(observe: Observe) -> AsyncIterator[None]:
    """The running loop's lag is measured within the block."""
    measuring = asyncio.create_task(LoopLag(observe, asyncio.get_running_loop().time).run())
    try:
        yield
    finally:
        measuring.cancel()
        with suppress(asyncio.CancelledError):
            await measuring
