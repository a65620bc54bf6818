"""The changes of one kind, in order, from which every watch reads for itself.

A change is kept once, however many watch. The oldest are forgotten when there are more than the limit, as etcd
compacts its history: a watch that starts before them has to list anew.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parley.kube.memory.errors import expired
from parley.kube.memory.kinds import Json


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as the server keeps it. Its `body` is never changed, and `data` is its JSON."""

    body: Json
    data: bytes
    owners: Any
    """See `ownership.Owners`."""

    @property
    def meta(self) -> Json:
        """The object's metadata."""
        meta: Json = self.body["metadata"]
        return meta


@dataclass(frozen=True, slots=True)
class Change:
    """An object before and after: None before its creation and after its deletion."""

    version: int
    old: Stored | None
    new: Stored | None
    last: Stored
    """The object after the change; of a deletion its last state, with the deletion's resourceVersion."""


class History:
    """See the module."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self._forgotten = 0
        self._waiting: dict[asyncio.Future[bool], None] = {}  # in order: every run takes the same course

    def append(self, change: Change) -> None:
        """Record the change and wake who waits for one."""
        self._changes.append(change)
        if len(self._changes) > 2 * self._limit:
            self._forget(len(self._changes) - self._limit)
        self.wake()

    def forget(self) -> None:
        """Forget everything so far."""
        self._forget(len(self._changes))

    def _forget(self, count: int) -> None:
        if count:
            self._forgotten = self._changes[count - 1].version
            del self._changes[:count]

    def after(self, version: int) -> Sequence[Change]:
        """The changes since `version`. Raises Expired if some of them are forgotten."""
        if version < self._forgotten:
            raise expired(version, self._forgotten)
        if not self._changes or self._changes[-1].version <= version:
            return ()
        return self._changes[bisect_right(self._changes, version, key=lambda change: change.version) :]

    async def changed(self, within: float) -> bool:
        """Wait for the next change, or for `wake`; returns False if neither came within so many seconds."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting[waiter] = None
        limit = loop.call_later(within, _end, waiter, False)
        try:
            return await waiter
        finally:
            limit.cancel()
            self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """End every wait for a change."""
        for waiter in self._waiting:
            _end(waiter, True)
        self._waiting.clear()


def _end(waiter: asyncio.Future[bool], changed: bool) -> None:
    if not waiter.done():
        waiter.set_result(changed)
