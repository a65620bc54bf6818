"""A process dies at a write, before or after the API server did it, and is started again, as Kubernetes would.

`at_every_write` plays a life once, undisturbed. At each write the process that plays it is forked, and in the copy
the process of the story dies there; the copy plays on to the end. So what comes before a death is played once, not
once for each. What a life is, and what must be true at its end, is the test's.
"""

import asyncio
import gc
import os
import traceback
from collections.abc import Awaitable, Callable
from typing import Protocol, Self, TypeVar

from tests.support.faults import FaultClient, NumberedCall

from parley.kube.client import Client
from parley.kube.memory import MemoryServer


class Place(Protocol):
    """A world that processes can be killed in."""

    server: MemoryServer
    killed: set[asyncio.Task[None]]
    """Tasks that may end by themselves."""


W = TypeVar("W", bound=Place)

Start = Callable[[Client | None], asyncio.Task[None]]
"""Starts a process that knows nothing yet, with that client or one of its own."""


class Death:
    """Comes at every write, to a copy of the process that plays, before or `after` the API server did it."""

    def __init__(self, *, after: bool) -> None:
        self.after = after
        self.write = 0
        """In a copy the write, counted from 1, at which it comes; 0 where it never does."""
        self.copies = 0
        self.failures: list[str] = []
        """What became of copies that failed."""
        self._told = -1

    def come(self, write: int) -> None:
        """Fork, if this is no copy, and wait until the copy has ended."""
        if self.write:
            return
        told, tell = os.pipe()
        loop = asyncio.get_running_loop()
        child = os.fork()
        if child == 0:
            os.close(told)
            gc.freeze()  # a copy of a page is made when the collector looks at what is on it
            asyncio._set_running_loop(loop)  # asyncio takes a loop for running in the process that started it only
            self.write, self._told = write, tell
            return
        os.close(tell)
        with os.fdopen(told, encoding="utf-8") as copy:
            outcome = copy.read()
        os.waitpid(child, 0)
        self.copies += 1
        if outcome != _WELL:
            self.failures.append(f"killed {'after' if self.after else 'before'} write {write}: {outcome}")

    def end_copy(self, error: BaseException | None) -> None:
        """Tell how the copy fared, and end it; nothing in the process that is no copy."""
        if self.write:
            outcome = _WELL if error is None else "".join(traceback.format_exception(error))
            with os.fdopen(self._told, "w", encoding="utf-8") as original:
                original.write(outcome)
            os._exit(0)


_WELL = "well"

Life = Callable[[W, Death], Awaitable[int]]
"""Returns how many writes the process that is to die asked for, its successor's left out."""


class Killed(BaseException):
    """The process is gone: no further call leaves it."""


class Executioner:
    """Within the block a process runs, dies, and is followed by a new one. It must have died at the end of it."""

    def __init__(self, world: Place, start: Start, death: Death) -> None:
        self._world = world
        self._start = start
        self._death = death
        self._died = False
        self._client = FaultClient(world.server.client(), before=self._before, after=self._after)

    @property
    def writes(self) -> int:
        """How many the first process asked for."""
        return self._client.writes

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._running.cancel()
        assert kind is not None or self._died == bool(self._death.write)

    def _before(self, call: NumberedCall) -> None:
        if call.write and not self._death.after:
            self._death.come(call.write)
        if self._death.write and call.write and call.write + (not self._death.after) > self._death.write:
            raise Killed

    def _after(self, call: NumberedCall) -> None:
        if call.write and self._death.after:
            self._death.come(call.write)
            if call.write == self._death.write:
                raise Killed

    async def _run(self) -> None:
        task = self._start(self._client)
        self._world.killed.add(task)
        await asyncio.wait([task])
        self._died = True
        self._start(None)


def at_every_write(
    play: Callable[[Callable[[W], Awaitable[None]]], None], life: Life[W], *, after: bool, at_least: int
) -> None:
    """Play the life with a death at each of its writes, of which there must be so many at least."""
    death, counted = Death(after=after), list[int]()

    async def scenario(world: W) -> None:
        counted.append(await life(world, death))

    try:
        play(scenario)
    except BaseException as error:
        death.end_copy(error)
        raise
    death.end_copy(None)
    (writes,) = counted
    assert writes >= at_least
    assert death.copies >= at_least  # after a write that the server refused none dies
    assert not death.failures, "\n".join(death.failures)
