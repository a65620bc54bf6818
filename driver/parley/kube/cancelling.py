"""Distinguishes a cancellation by a driver or its libraries from a cancellation of the task that awaits it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class CancelledItself(Exception):
    """Raised when a driver's work was cancelled, but not by its caller."""


@contextmanager
def uncancelled(driver: str) -> Iterator[None]:
    """Raises CancelledItself if the driver or a library cancels work in the block: that is a failure of the
    driver. As a CancelledError it would end the caller's task without a report."""
    try:
        yield
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise  # the caller was cancelled: a time limit, or the program stops
        raise CancelledItself(f"driver {driver} cancelled its own work") from error
