"""Undoes allocations of a driver that were abandoned before they were recorded: deallocates until that succeeds.

The driver is called at once. A failed call is repeated with back-off, or before the claim is allocated again;
never while the claim is being allocated again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from weakref import WeakValueDictionary

from parley.kube.backoff import Backoff

_BACKOFF = Backoff(first=1.0, longest=300.0)


class Undos:
    """Abandoned allocations, by the claim's UID. `deallocate` calls the driver; `failed` gets its exceptions."""

    def __init__(self, deallocate: Callable[[str], Awaitable[None]], failed: Callable[[Exception], None]) -> None:
        self._deallocate = deallocate
        self._on_failure = failed
        self._due: set[str] = set()
        self._retry = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def undo(self, uids: Iterable[str]) -> None:
        """Deallocates these claims, whose allocations are recorded nowhere, all at once: a driver that hangs holds
        up whoever waits for many no longer than for one."""
        uids = list(uids)
        self._due.update(uids)
        await asyncio.gather(*map(self._try, uids))

    async def finish(self, uid: str) -> None:
        """Deallocates the claim now if that is still due. Raises the driver's exceptions."""
        async with self._locks.setdefault(uid, asyncio.Lock()):
            if uid in self._due:
                await self._deallocate(uid)
                self._due.discard(uid)

    def forget(self, uid: str) -> None:
        """Removes the claim: it was deallocated by another call."""
        self._due.discard(uid)

    async def run(self, changed: Callable[[], None]) -> None:
        """Repeats failed deallocations until cancelled. `changed` is called when something may be free again."""
        failures = 0
        while await self._retry.wait():
            failures += 1
            await asyncio.sleep(_BACKOFF.delay(failures))
            self._retry.clear()
            for uid in [*self._due]:
                await self._try(uid)
            failures = failures if self._due else 0
            changed()

    async def _try(self, uid: str) -> None:
        try:
            await self.finish(uid)
        except Exception as error:
            self._on_failure(error)
            self._retry.set()
