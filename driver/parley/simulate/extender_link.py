"""The connection from a simulated kube-scheduler to Parley's extender, as between two containers.

When a controller ends, its pending requests are never answered: the scheduler's connection breaks at once.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from parley.scheduler.controller import Controller
from parley.simulate.extender_calls import ExtenderUnavailable


class ExtenderEndpoint(Protocol):
    """The endpoint that answers calls: Parley's extender, or a test's wrapper of it."""

    async def answer(self, verb: str, body: bytes) -> bytes: ...


Leading = Callable[[], ExtenderEndpoint | None]
"""Returns the extender of a process that leads and is ready; None if there is none."""


def leading(controller: Controller) -> Leading:
    """The controller's extender, as `parley.scheduler.extender.server` gets it."""
    return lambda: controller.extender if controller.ready.is_set() else None


class ExtenderLink:
    """An `Extender` that calls the connected controller's; unavailable before `connect`."""

    def __init__(self) -> None:
        self._leading: Leading = lambda: None
        self._under_way: set[asyncio.Task[bytes]] = set()

    def connect(self, leading: Leading) -> None:
        """Forward calls to this process from now on."""
        self._leading = leading

    def cut(self) -> None:
        """End the process: cancels its pending calls, and makes the extender unavailable."""
        self._leading = lambda: None
        for task in self._under_way:
            task.cancel()

    async def __call__(self, verb: str, body: bytes) -> bytes:
        extender = self._leading()
        if extender is None:
            raise ExtenderUnavailable
        task = asyncio.ensure_future(extender.answer(verb, body))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        if task.cancelled():
            raise ExtenderUnavailable
        return task.result()
