"""Faults of bindings: they fail, or the response is lost and the scheduler undoes what it did, as after a failure.

Lost are the API server's responses to a scheduler's own bindings, and the extender's to those that the extender
makes.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.support.trouble import Rates, TroubleClient

from parley.kube.client import Call, Client, OutcomeUnknown
from parley.simulate.extender_calls import ExtenderUnavailable

T = TypeVar("T")

LOST_BINDINGS = Rates(conflict=0.02, failing=0.03, lost=0.2)
LONGEST = 3.0
"""Seconds until a scheduler gives up waiting for the answer."""


class BindingClient(Client):
    """A scheduler's client that has trouble with bindings alone, by the rates of `trouble`."""

    def __init__(self, client: Client, chance: random.Random, rates: Rates) -> None:
        super().__init__(client)
        self.trouble = TroubleClient(client, chance, rates)
        self._chance = chance

    async def request(self, call: Call) -> bytes:
        if call.subresource != "binding":
            return await super().request(call)
        try:
            return await self.trouble.request(call)
        except OutcomeUnknown:
            await asyncio.sleep(self._chance.uniform(0, LONGEST))
            raise

    async def extended(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        """Bind through the extender. Raises ExtenderUnavailable, before it happened or after it."""
        lost = self.trouble.rates.lost
        if not lost or self._chance.random() > lost:
            return await request()
        if self._chance.random() < 0.5:
            await request()
            await asyncio.sleep(self._chance.uniform(0, LONGEST))
        raise ExtenderUnavailable
