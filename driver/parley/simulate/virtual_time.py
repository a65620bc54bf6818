"""An event loop whose clock jumps ahead as soon as there is nothing left to do now.

A simulated cluster waits for timeouts and backoffs like a real one, but its minutes pass at once, and the same
input always gives the same sequence. For code without threads only: the clock does not wait for their results.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Adds the time that it was asked to wait to `waited` instead of waiting.

    It looks for signals, the only thing that comes from outside, where it was asked to wait. Without a limit it
    does wait: then nothing but a signal can go on.
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
    """Starts at 0 s."""

    def __init__(self) -> None:
        self._jumping = _Selector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the start of the loop, as its tasks experience them."""
        return self._jumping.waited

    def advance(self, seconds: float) -> None:
        """As if what runs now took so long."""
        self._jumping.waited += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in virtual time.

    Unlike asyncio.run it leaves the thread's current event loop as it was, which others may still need.
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
