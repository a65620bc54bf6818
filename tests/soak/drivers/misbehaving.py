"""A driver that breaks off, hangs, is cancelled, answers late or answers nonsense, where the plan says so.

What it raises in `allocate` it raises with nothing held, or with everything, and what it raises in `deallocate` it
has not released, or has. A call that is cancelled because it takes too long may go on for a
moment, and then end as if nothing had happened.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from parley.control.limited_driver import CALL_SECONDS
from parley.sdk import Allocation, Answer, Driver

OFTEN = 0.05
"""Of the calls that may fail."""

SELDOM = 0.01
"""Of those that are made for each change."""


class Broke(Exception):
    """Raised by the driver, where nobody expects it."""


class MisbehavingDriver(Driver[Any, Any]):
    """To be put before a driver that works."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)  # type: ignore[call-arg]
        self._drawn = chance
        self.is_misbehaving = False
        self.may_go_on: Callable[[], bool] = lambda: False
        """Whether it may ignore that it is cancelled: not when its process ends."""

    def _fails(self, part: float) -> bool:
        return self.is_misbehaving and self._drawn.random() < part

    def _breaks(self, what: str, part: float = SELDOM) -> None:
        if self._fails(part):
            raise Broke(what)

    async def _hang(self) -> None:
        """For longer than any call may take, or nearly so."""
        seconds = self._drawn.uniform(0.8, 2.5) * CALL_SECONDS
        begun = _now()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if not self.may_go_on() or _now() - begun < CALL_SECONDS / 2 or self._drawn.random() < 0.5:
                raise
            await asyncio.sleep(self._drawn.uniform(0, 3))

    async def _misbehave(self, part: float) -> None:
        """Takes its time, and may end it by an exception of its own or a cancellation."""
        if self._fails(part):
            await self._hang()
        self._breaks("it does not come up", part)
        if self._fails(part):
            raise asyncio.CancelledError

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await self._misbehave(OFTEN)
        found = dict(await super().allocate(request, node))
        if self._fails(OFTEN):
            await self._hang()
        self._breaks("the answer was lost", OFTEN)
        if self._fails(OFTEN):
            del found[next(iter(found))]
        return found

    async def deallocate(self, uid: str) -> None:
        await self._misbehave(OFTEN)
        await super().deallocate(uid)
        self._breaks("it is not sure whether it is gone", OFTEN)

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        self._breaks("no answer")
        return super().viable(request, nodes)

    def has_room(self, request: Any, node: str) -> bool:
        self._breaks("no idea")
        return super().has_room(request, node)

    def alike(self, request: Any) -> Any:
        self._breaks("nothing like it")
        return super().alike(request)

    def observe(self, old: Any | None, new: Any | None) -> bool | Collection[str]:
        found = super().observe(old, new)
        self._breaks("it looked away")
        return found

    def users_changed(self, uid: str) -> None:
        super().users_changed(uid)
        self._breaks("who are they")


def _now() -> float:
    return asyncio.get_running_loop().time()
