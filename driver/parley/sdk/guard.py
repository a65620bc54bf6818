"""Keeps what a driver raises from whom it does not concern: it is a DriverFault, and is reported."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from parley.sdk.checks import BadParameters, DriverFault, fault_text, shown
from parley.sdk.referenced import NotRead

RAISED = (Exception, asyncio.CancelledError)
"""What a method of a driver may raise that is called without await: nobody cancels it, so that is its own, too."""


@contextmanager
def uncancelled(driver: str) -> Iterator[None]:
    """What the driver of that name awaits, or looks at, may be cancelled, by itself or a library: its failure,
    and a DriverFault. As a cancellation it would end its caller's task, and nobody would hear of it."""
    try:
        yield
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise  # the caller's: a time limit, or the program stops
        raise DriverFault(f"driver {driver} cancelled its own work") from error


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

    def uncancelled(self) -> AbstractContextManager[None]:
        """See `uncancelled`."""
        return uncancelled(self._driver)

    def check_async(self, call: str, result: object) -> None:
        """A method without async has done its work when it returns what nobody can await. Raises DriverFault."""
        if not isinstance(result, Awaitable):
            text = f"driver {self._driver} returned {shown(result)} from {call}"
            raise DriverFault(f"{text}, which cannot be awaited: {call} must be async def")
