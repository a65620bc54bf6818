"""Lets a bind wait for the next change that concerns its pod: a condition variable for each pod."""

import asyncio
from collections import defaultdict

from parley.kube.cache import Key


class Notifications:
    """Futures of bind calls that wait for a change of a pod, by the pod's key."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Key, list[asyncio.Future[None]]] = defaultdict(list)

    def notify(self, key: Key) -> None:
        """Wake the binds that wait for a change of the pod with that key."""
        for future in self._waiting.pop(key, ()):
            _end(future)

    async def wait(self, key: Key, until: float) -> None:
        """Wait for the pod's next change, at most until that time on the event loop's clock."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[key].append(future)
        timer = loop.call_at(until, _end, future)
        try:
            await future
        finally:
            timer.cancel()
            waiting = self._waiting.get(key, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(key, None)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
