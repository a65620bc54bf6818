"""What a driver allocated of which nothing came, until the driver has given it back.

The driver is asked at once. What it refuses then is done after growing pauses, or before the claim is allocated
again; never while the claim is allocated anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from weakref import WeakValueDictionary

from parley.kube.backoff import Backoff

_AGAIN = Backoff(first=1.0, longest=300.0)


class Undos:
    """By the claim's UID. `give_back` is the driver's call; `failed` hears what it raises."""

    def __init__(self, give_back: Callable[[str], Awaitable[None]], failed: Callable[[Exception], None]) -> None:
        self._give_back = give_back
        self._failed = failed
        self._due: set[str] = set()
        self._refused = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def undo(self, uids: Iterable[str]) -> None:
        """Nothing came of what was allocated for these claims, and it is recorded nowhere. All are given back at
        once: whoever waits for the end does so no longer for many than for one."""
        uids = list(uids)
        self._due.update(uids)
        await asyncio.gather(*map(self._try, uids))

    async def finish(self, uid: str) -> None:
        """The claim is to be allocated again. Raises what the driver does."""
        async with self._locks.setdefault(uid, asyncio.Lock()):
            if uid in self._due:
                await self._give_back(uid)
                self._due.discard(uid)

    def forget(self, uid: str) -> None:
        """The claim holds nothing any more."""
        self._due.discard(uid)

    async def run(self, changed: Callable[[], None]) -> None:
        """Do what was refused, until cancelled. `changed` is called when something may have come free."""
        failures = 0
        while await self._refused.wait():
            failures += 1
            await asyncio.sleep(_AGAIN.delay(failures))
            self._refused.clear()
            for uid in [*self._due]:
                await self._try(uid)
            failures = failures if self._due else 0
            changed()

    async def _try(self, uid: str) -> None:
        try:
            await self.finish(uid)
        except Exception as error:
            self._failed(error)
            self._refused.set()
