"""The changes of one kind, in order. Each watch reads them at its own pace.

A change is stored once for all watches. If there are more changes than the limit, the oldest are dropped, as etcd
compacts its history: a watch that starts from an earlier version has to list again.
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
    """An object as stored. `body` is never changed in place; `data` is its JSON."""

    body: Json
    data: bytes
    owners: Any
    """See `managed_fields.Owners`."""

    @property
    def meta(self) -> Json:
        """The object's metadata."""
        meta: Json = self.body["metadata"]
        return meta


@dataclass(frozen=True, slots=True)
class Change:
    """An object before and after a change: None before its creation and after its deletion."""

    version: int
    old: Stored | None
    new: Stored | None
    last: Stored
    """The object after the change; for a deletion its last state, with the deletion's resourceVersion."""


class History:
    """The changes of one kind, of which at least the last `limit` are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self._compacted = 0
        self._waiting: dict[asyncio.Future[bool], None] = {}  # ordered, so that runs are reproducible

    def append(self, change: Change) -> None:
        """Record the change and wake all waiters."""
        self._changes.append(change)
        if len(self._changes) > 2 * self._limit:
            self._compact(len(self._changes) - self._limit)
        self.wake()

    def forget(self) -> None:
        """Drop all changes so far."""
        self._compact(len(self._changes))

    def _compact(self, count: int) -> None:
        if count:
            self._compacted = self._changes[count - 1].version
            del self._changes[:count]

    def after(self, version: int) -> Sequence[Change]:
        """The changes since `version`. Raises Expired if some of them were dropped."""
        if version < self._compacted:
            raise expired(version, self._compacted)
        if not self._changes or self._changes[-1].version <= version:
            return ()
        return self._changes[bisect_right(self._changes, version, key=lambda change: change.version) :]

    async def changed(self, within: float) -> bool:
        """Wait for the next change, or for `wake`; returns False if neither comes within `within` seconds."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting[waiter] = None
        limit = loop.call_later(within, _resolve, waiter, False)
        try:
            return await waiter
        finally:
            limit.cancel()
            self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """End every wait for a change."""
        for waiter in self._waiting:
            _resolve(waiter, True)
        self._waiting.clear()


def _resolve(waiter: asyncio.Future[bool], changed: bool) -> None:
    if not waiter.done():
        waiter.set_result(changed)
