"""Keeps what a driver raises from whom it does not concern: it is a DriverFault, and is reported."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from parley.kube.cancelling import CancelledItself, uncancelled
from parley.sdk.checks import BadParameters, DriverFault, fault_text, shown
from parley.sdk.referenced import NotRead

RAISED = (Exception, asyncio.CancelledError)
"""What a method of a driver may raise that is called without await: nobody cancels it, so that is its own, too."""


class Guard:
    """Around the calls of the driver of that name. `failed` hears of each failure, with the call's name."""

    def __init__(self, driver: str, failed: Callable[[str, BaseException], None]) -> None:
        self._driver = driver
        self._failed = failed

    @contextmanager
    def contained(self, call: str) -> Iterator[None]:
        """What the block raises is a DriverFault; what concerns parameters passes as it is."""
        try:
            with self.uncancelled():
                yield
        except (BadParameters, NotRead):
            raise
        except DriverFault as fault:
            self._failed(call, fault)
            raise
        except Exception as error:
            self._failed(call, error)
            raise DriverFault(f"driver {self._driver} failed in {call}: {fault_text(error)}") from error

    @contextmanager
    def uncancelled(self) -> Iterator[None]:
        """What the driver cancels itself is its failure, like any other, and a DriverFault."""
        try:
            with uncancelled(self._driver):
                yield
        except CancelledItself as error:
            raise DriverFault(str(error)) from error

    async def awaited(self, call: str, begun: object) -> Any:
        """What the method returns. Raises DriverFault if it is not async."""
        self.check_async(call, begun)
        return await cast(Awaitable[Any], begun)

    def check_async(self, call: str, result: object) -> None:
        """A method without async has done its work when it returns what nobody can await. Raises DriverFault."""
        if not isinstance(result, Awaitable):
            text = f"driver {self._driver} returned {shown(result)} from {call}"
            raise DriverFault(f"{text}, which cannot be awaited: {call} must be async def")
