"""Faults on demand: a client around a client, for tests that kill or cut a controller at a given call.

    client = FaultClient(server.client(), before=kill_at(3, Killed()))      # dies instead of the third write
    client = FaultClient(server.client(), after=kill_at(3, Killed()))       # the third write happens, unheard

The hooks may raise anything, a BaseException for the death of the process included. Loops over all writes of a
scenario run it once without a fault and take `writes` as the number of places to die at. Faults by chance are
`trouble`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from parley.kube.around import AroundClient, Call
from parley.kube.client import Client, WatchEvent

__all__ = ["Call", "FaultClient", "Hook", "kill_at", "nothing"]

T = TypeVar("T")

Hook = Callable[[Call], None]


def nothing(_: Call) -> None:
    """The hook that lets every call pass."""


def kill_at(write: int, error: BaseException) -> Hook:
    """A hook that raises `error` at the write of that number."""

    def raise_at(call: Call) -> None:
        if call.write == write:
            raise error

    return raise_at


class FaultClient(AroundClient):
    """Calls `before` ahead of each call and `after` once the server did it, with the same `Call`.

    What `before` raises comes instead of the call; what `after` raises comes instead of its answer. A watch is
    one call, made when it is first waited for, and `after` is called when it ends by itself.
    """

    def __init__(self, client: Client, *, before: Hook = nothing, after: Hook = nothing) -> None:
        super().__init__(client)
        self._before = before
        self._after = after
        self.calls: list[Call] = []
        """All calls so far, refused ones included."""
        self._writes = 0

    @property
    def writes(self) -> int:
        """How many writes were asked for so far."""
        return self._writes

    async def read(self, call: Call, request: Callable[[], Awaitable[T]]) -> T:
        self._begin(call)
        answer = await request()
        self._after(call)
        return answer

    async def write(self, call: Call, request: Callable[[], Awaitable[T]]) -> T:
        self._writes += 1
        call = replace(call, write=self._writes)
        self._begin(call)
        answer = await request()
        self._after(call)
        return answer

    async def follow(
        self, call: Call, request: Callable[[], AsyncIterator[WatchEvent[T]]]
    ) -> AsyncIterator[WatchEvent[T]]:
        self._begin(call)
        async for event in request():
            yield event
        self._after(call)

    def _begin(self, call: Call) -> None:
        self.calls.append(call)
        self._before(call)
