"""An event loop with virtual time: its clock jumps to the next timer as soon as no task can run.

A simulated cluster waits for timeouts and back-offs like a real one, but without real delays, and the same input
always gives the same sequence. For code without threads only: the clock does not wait for their results.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Adds the requested timeout to `waited` instead of waiting.

    It polls for signals, the only external events, whenever it is asked to wait. Without a timeout it does wait:
    then only a signal can wake the loop.
    """

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(timeout)
        if timeout <= 0:
            return []
        events = super().select(0)
        if not events:
            self.waited += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The event loop; its clock starts at 0 s."""

    def __init__(self) -> None:
        self._virtual_selector = _Selector()
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        """Virtual seconds since the start of the loop."""
        return self._virtual_selector.waited

    def advance(self, seconds: float) -> None:
        """Advance the clock, as if the running code had taken so long."""
        self._virtual_selector.waited += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in virtual time.

    Unlike asyncio.run it does not change the thread's current event loop, which other code may still use.
    """
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True) if left else asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
