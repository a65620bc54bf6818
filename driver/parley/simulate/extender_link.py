"""The way from a simulated kube-scheduler to Parley's extender path, as the connection between two containers.

Requests of a controller that ends are never answered; the scheduler sees at once that the connection broke.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from parley.scheduler.controller import Controller
from parley.simulate.extender_calls import ExtenderUnavailable


class ExtenderEndpoint(Protocol):
    """What answers a call: Parley's extender, or what a test puts before it."""

    async def answer(self, verb: str, body: bytes) -> bytes: ...


Leading = Callable[[], ExtenderEndpoint | None]
"""The extender path of a process that leads and has begun to act."""


def leading(controller: Controller) -> Leading:
    """The controller's own, as `parley.scheduler.extender.server` asks for it."""
    return lambda: controller.extender if controller.ready.is_set() else None


class ExtenderLink:
    """An `Extender`. Nobody listens before `connect`."""

    def __init__(self) -> None:
        self._leading: Leading = lambda: None
        self._under_way: set[asyncio.Task[bytes]] = set()

    def connect(self, leading: Leading) -> None:
        """A process listens from now on."""
        self._leading = leading

    def cut(self) -> None:
        """The process is gone, and with it whatever it was doing for the scheduler."""
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
