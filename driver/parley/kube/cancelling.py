"""Tells work that was cancelled by itself from a cancellation of who awaits it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class CancelledItself(Exception):
    """Raised when a driver's work was cancelled, and nobody had asked for that."""


@contextmanager
def uncancelled(driver: str) -> Iterator[None]:
    """What the driver of that name awaits, or looks at, may be cancelled, by itself or a library: its failure,
    and CancelledItself. As a cancellation it would end its caller's task, and nobody would hear of it."""
    try:
        yield
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise  # the caller's: a time limit, or the program stops
        raise CancelledItself(f"driver {driver} cancelled its own work") from error
