"""Lets a bind wait for what is about to happen to its pod."""

import asyncio
from collections import defaultdict

from parley.control.cluster import Key
from parley.scheduler.pods import now


class News:
    """Who waits for news of which pod."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Key, list[asyncio.Future[None]]] = defaultdict(list)

    def tell(self, key: Key) -> None:
        """Something about the pod of that name may have changed."""
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    async def wait(self, key: Key, until: float) -> None:
        """Return at the next news, at the latest at that time of the event loop's clock."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[key].append(future)
        await asyncio.wait((future,), timeout=max(until - now(), 0.0))
        waiting = self._waiting.get(key)
        if waiting is not None and future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[key]
