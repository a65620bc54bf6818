"""An informer of a kind that most clusters need not read: it begins when somebody first wants it."""

import asyncio
from contextlib import suppress
from typing import Generic, TypeVar

from parley.kube.informer import Informer

T = TypeVar("T")

SYNC_SECONDS = 10.0
"""So long the first list is waited for. Without the right to read the kind everything else goes on."""


class WantedInformer(Generic[T]):
    """An informer that does nothing until `want` is first called, and runs from then on."""

    def __init__(self, informer: Informer[T]) -> None:
        self.informer = informer
        self._wanted = asyncio.Event()
        self._until = 0.0

    def want(self) -> None:
        """Begin to read the kind. Idempotent."""
        if not self.is_wanted:
            self._wanted.set()
            self._until = asyncio.get_running_loop().time() + SYNC_SECONDS

    @property
    def settled(self) -> bool:
        """Whether the kind was listed, or that was waited for long enough."""
        return self.informer.synced.is_set() or asyncio.get_running_loop().time() >= self._until

    @property
    def is_wanted(self) -> bool:
        """Whether it was ever wanted."""
        return self._wanted.is_set()

    async def run(self) -> None:
        """Keep the cache, once it is wanted, until cancelled."""
        await self._wanted.wait()
        await self.informer.run()

    async def synced(self) -> None:
        """Return when the kind was listed, if it is wanted, or after a moment."""
        if self.is_wanted:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.informer.synced.wait(), SYNC_SECONDS)
