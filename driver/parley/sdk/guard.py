"""Contains the exceptions of a driver: each call that fails raises a DriverFault, and is reported."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from parley.kube.backoff import Backoff
from parley.kube.cancelling import CancelledItself, uncancelled
from parley.sdk.checks import BadParameters, DriverFault, fault_text, shown
from parley.sdk.referenced import ParametersUnavailable

RAISED = (Exception, asyncio.CancelledError)
"""The exceptions of a driver's synchronous method: a CancelledError is its own, as nobody can cancel the call."""

_BACKOFF = Backoff(first=1.0, longest=300.0)


class Guard:
    """Wraps calls of the driver of that name. `on_failure` is called for each failure, with the method's name."""

    def __init__(self, driver: str, on_failure: Callable[[str, BaseException], None]) -> None:
        self._driver = driver
        self._on_failure = on_failure

    @contextmanager
    def contained(self, call: str) -> Iterator[None]:
        """Turns exceptions of the block into DriverFault. BadParameters and ParametersUnavailable pass
        unchanged."""
        try:
            with self.uncancelled():
                yield
        except (BadParameters, ParametersUnavailable):
            raise
        except DriverFault as fault:
            self._on_failure(call, fault)
            raise
        except Exception as error:
            self._on_failure(call, error)
            raise DriverFault(f"driver {self._driver} failed in {call}: {fault_text(error)}") from error

    @contextmanager
    def uncancelled(self) -> Iterator[None]:
        """Raises DriverFault if the driver cancels its own call: that is a failure like any other."""
        try:
            with uncancelled(self._driver):
                yield
        except CancelledItself as error:
            raise DriverFault(str(error)) from error

    async def awaited(self, call: str, result: object) -> Any:
        """Awaits the result of the method. Raises DriverFault if the method is not async."""
        self.check_async(call, result)
        return await cast(Awaitable[Any], result)

    async def repeated(self, call: str, method: Callable[[], object], changed: Callable[[], None]) -> None:
        """Calls the method until it ends without a failure, with growing pauses. `changed` is called after each
        pause: what the failed call changed is not known."""
        failures = 0
        while True:
            try:
                with self.uncancelled():
                    await self.awaited(call, method())
            except Exception as error:
                failures += 1
                self._on_failure(call, error)
                await asyncio.sleep(_BACKOFF.delay(failures))
                changed()
            else:
                return

    def check_async(self, call: str, result: object) -> None:
        """Raises DriverFault if the result of the method can't be awaited: it lacks `async`."""
        if not isinstance(result, Awaitable):
            text = f"driver {self._driver} returned {shown(result)} from {call}"
            raise DriverFault(f"{text}, which cannot be awaited: {call} must be async def")
