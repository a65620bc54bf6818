"""Several processes on one event loop: whose code runs now, and stopping one as SIGSTOP does.

A process is the name in `WHO` of the context that its first task is started in; everything it starts inherits it.
A stopped process does nothing, its timers included; what reached it meanwhile is there when it goes on.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from tests.support.trouble import LATE_WRITE

from parley.simulate.virtual_time import VirtualTimeLoop

T = TypeVar("T")

MOST_READS = 60_000
WINDOW = 1.0
"""Seconds in which the clock is read at most so often: what goes round without an end may let moments pass."""

WHO: ContextVar[str] = ContextVar("WHO", default="user")
"""The process that the running code belongs to."""


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """What the block does, and the tasks it starts, belong to that process."""
    token = WHO.set(name)
    try:
        yield
    finally:
        WHO.reset(token)


class Spinning(Exception):
    """Raised when the clock was read very often and hardly any time passed: something goes round for ever."""


class ProcessLoop(VirtualTimeLoop):
    """Virtual time with processes that can be stopped."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped: dict[str, list[asyncio.Handle]] = {}
        self._now = 0.0
        self._reads = 0
        self._keeps_timers = True
        self._owners: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()

    def time(self) -> float:
        """Each turn of the loop reads it, too. Raises Spinning."""
        now = super().time()
        if now - self._now > WINDOW:
            self._now, self._reads = now, 0
            return now
        self._reads += 1
        if self._reads > MOST_READS:
            self._reads = 0
            raise Spinning
        return now

    @contextmanager
    def without_timers(self) -> Iterator[None]:
        """What the block wants to be done later is never done."""
        self._keeps_timers = False
        try:
            yield
        finally:
            self._keeps_timers = True

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if not self._keeps_timers:
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def stop_process(self, name: str) -> None:
        """Let nothing of it run until `continue_process`. It must not be the caller's own."""
        self._stopped.setdefault(name, [])

    def continue_process(self, name: str) -> None:
        """Go on where it stopped."""
        for handle in self._stopped.pop(name, []):
            super().call_soon(_run, handle)

    def tasks_of(self, name: str) -> list[asyncio.Task[Any]]:
        """Its tasks that have not ended."""
        return [task for task, owner in self._owners.items() if owner == name and not task.done()]

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        if name == LATE_WRITE and context is None:
            context = copy_context()
            context.run(WHO.set, f"{WHO.get()} (late)")  # on its way: stopping its sender does not stop it
        task = super().create_task(coro, name=name, context=context)
        self._owners[task] = WHO.get() if context is None else context.get(WHO, "user")
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._stopped:
            name = WHO.get() if context is None else context.get(WHO, "user")
            if name in self._stopped:
                handle = asyncio.Handle(callback, args, self, context)
                self._stopped[name].append(handle)
                return handle
        return super().call_soon(callback, *args, context=context)


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()
