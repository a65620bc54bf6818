"""An informer of a kind that is not needed in most clusters: it begins when it is first wanted."""

import asyncio
from contextlib import suppress
from typing import Generic, TypeVar

from parley.kube.informer import Informer

T = TypeVar("T")

SYNC_SECONDS = 10.0
"""The longest wait for the first list. Without the right to read the kind everything else goes on."""


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
        """Whether the kind was listed, or the wait for that has ended."""
        return self.informer.synced.is_set() or asyncio.get_running_loop().time() >= self._until

    @property
    def is_wanted(self) -> bool:
        """Whether the informer was ever wanted."""
        return self._wanted.is_set()

    async def run(self) -> None:
        """Run the informer, once it is wanted, until cancelled."""
        await self._wanted.wait()
        await self.informer.run()

    async def synced(self) -> None:
        """Wait until the kind was listed, if it is wanted, for at most `SYNC_SECONDS`."""
        if self.is_wanted:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.informer.synced.wait(), SYNC_SECONDS)
