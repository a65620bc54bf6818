"""An embedded driver whose slow calls can't occupy all of the controller's workers.

A call that allocates or releases occupies a worker until it returns. If the driver's backend hangs, its calls end
after `CALL_SECONDS`, and their number is limited so that other drivers' pods still find workers.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from parley.sdk import Allocation, Driver, Request
from parley.sdk.checks import DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.referenced import NO_REFERENCES, References

CALL_SECONDS = 30.0
"""The time limit for a call of an embedded driver that allocates or releases."""

MOST_CALLS = 12
"""The calls of a driver that may be under way at once: three of four workers of a queue."""

SLOW_SECONDS, MOST_SLOW = 1.0, 8
"""Calls are slow after this time, and so many may be slow at once: half of the workers."""


class LimitedDriver(EmbeddedDriver):
    """An embedded driver whose calls are counted, and limited in time."""

    def __init__(self, driver: Driver[Any, Any], references: References = NO_REFERENCES) -> None:
        super().__init__(driver, references)
        self._begun: dict[object, float] = {}
        """When the call that a task waits for began, on the event loop's clock."""

    @property
    def is_saturated(self) -> bool:
        if not self._begun:
            return False
        before = asyncio.get_running_loop().time() - SLOW_SECONDS
        return len(self._begun) >= MOST_CALLS or sum(begun < before for begun in self._begun.values()) >= MOST_SLOW

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        with self._counted():
            return await super().allocate(request, node)

    async def deallocate(self, uid: str) -> None:
        """Deallocate as the base class does. Raises DriverFault also if that does not end in time."""
        with self._counted():
            await super().deallocate(uid)

    async def undo(self, uids: Sequence[str]) -> None:
        with self._counted():
            await super().undo(uids)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A call within another one, which gives back what that one allocated, is a part of it."""
        task = asyncio.current_task()
        if task in self._begun:
            yield
            return
        self._begun[task] = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            del self._begun[task]

    async def _give_back(self, uid: str) -> None:
        scope = asyncio.timeout(CALL_SECONDS)
        try:
            async with scope:
                await super()._give_back(uid)
        except TimeoutError as error:
            if not scope.expired():
                raise  # the driver's own
            raise DriverFault(
                f"driver {self.name} has not released what a claim holds within {CALL_SECONDS:g} s: a driver that "
                "takes longer has to set asynchronous = True"
            ) from error
