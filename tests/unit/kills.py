"""A process dies at a write, before or after the API server did it, and is started again, as Kubernetes would.

`at_every_write` plays a life once undisturbed, which tells how many writes there are to die at, and then once with
a death at each of them. What a life is, and what must be true at its end, is the test's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Death:
    """At the write of that number, counted from 1; 0 is never."""

    write: int
    after: bool = False
    """Whether the API server did the write."""

    @property
    def when(self) -> str:
        return f"{'after' if self.after else 'before'} write {self.write}"


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
        if self._death.write and call.write and call.write + (not self._death.after) > self._death.write:
            raise Killed

    def _after(self, call: NumberedCall) -> None:
        if self._death.write and self._death.after and call.write == self._death.write:
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
    counted: list[int] = []

    async def undisturbed(world: W) -> None:
        counted.append(await life(world, Death(0)))

    play(undisturbed)
    (writes,) = counted
    assert writes >= at_least
    for write in range(1, writes + 1):
        play(_ended_by(life, Death(write, after), writes))


def _ended_by(life: Life[W], death: Death, writes: int) -> Callable[[W], Awaitable[None]]:
    async def scenario(world: W) -> None:
        try:
            await life(world, death)
        except BaseException as error:
            raise AssertionError(f"killed {death.when} of {writes}") from error

    return scenario
