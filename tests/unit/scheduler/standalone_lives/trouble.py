"""Connections in random lives with standalone drivers: answers to writes are lost, writes and watches late."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field

from parley.kube.client import ApiError, Call, Client, OutcomeUnknown, RawEvent


@dataclass
class Trouble:
    """What processes suffer from: lost and late writes, with that chance, and watches that lag, in seconds."""

    chance: random.Random
    lost: float = 0.0
    lag: float = 0.0
    late: set[asyncio.Task[None]] = field(default_factory=set)


class TroubleClient(Client):
    """A process's connection."""

    def __init__(self, inner: Client, trouble: Trouble) -> None:
        super().__init__(inner)
        self._trouble = trouble

    async def request(self, call: Call) -> bytes:
        chance = self._trouble.chance
        if not call.writes or chance.random() >= self._trouble.lost:
            return await super().request(call)
        how = chance.choice(("never", "done", "late"))
        if how == "done":
            await super().request(call)
        elif how == "late":
            task = asyncio.create_task(self._deliver(call, chance.choice((0.5, 2, 6))))
            self._trouble.late.add(task)
            task.add_done_callback(self._trouble.late.discard)
        raise OutcomeUnknown(f"no answer: {how}")

    async def _deliver(self, call: Call, after: float) -> None:
        await asyncio.sleep(after)
        with suppress(ApiError, OutcomeUnknown):
            await super().request(call)

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            if self._trouble.lag and self._trouble.chance.random() < 0.3:
                await asyncio.sleep(self._trouble.chance.random() * self._trouble.lag)
            yield event
