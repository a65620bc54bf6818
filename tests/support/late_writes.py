"""A network that delivers a write late: its sender has given it up by then."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from parley.kube.client import AlreadyExists, Call, Client, Conflict, Invalid, OutcomeUnknown

LATE = 4.0
"""Seconds after which the write arrives."""

Which = Callable[[Call], bool]


class LateClient(Client):
    """Holds up the first write that `which` means once `armed` is set. `arrived` says what became of it."""

    def __init__(self, client: Client, which: Which, late: float = LATE) -> None:
        super().__init__(client)
        self._late = late
        self.armed = False
        self.given_up = asyncio.Event()
        self.arrived: asyncio.Task[str] | None = None
        self._which = which

    async def request(self, call: Call) -> bytes:
        if not self.armed or not self._which(call):
            return await super().request(call)
        self.armed = False
        self.given_up.set()
        self.arrived = asyncio.create_task(_arrive(partial(super().request, call), self._late))
        raise OutcomeUnknown("connection lost")


async def _arrive(request: Callable[[], Awaitable[bytes]], late: float) -> str:
    await asyncio.sleep(late)
    try:
        await request()
    except (Conflict, Invalid, AlreadyExists):
        return "refused"
    return "accepted"
