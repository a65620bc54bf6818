"""Trouble by chance: a client around a client that fails as networks and API servers do.

    client = TroubleClient(server.client(), random.Random(7), Rates.bad())
    client.blackout(30)        # API server and etcd restart: nothing gets through for half a minute
    client.hold(PODS, 60)      # watches of pods are a minute behind, others are not
    client.rates = Rates()     # quiet again

The same seed gives the same trouble to the same calls. It plays in the event loop's time, so that in virtual time
slow answers cost nothing. Faults at a given call are `faults`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from parley.api.resources import Resource
from parley.kube.client import (
    Call,
    Client,
    Conflict,
    Expired,
    OutcomeUnknown,
    RawEvent,
    ServerError,
    TooManyRequests,
)
from parley.kube.transport import Transport

LATEST = 4.0
"""Seconds after which no write arrives any more that its sender gave up."""

LATE_WRITE = "late write"
"""Name of the task that sends one."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How often each kind of trouble comes, 0 (never) to 1 (always).

    Of every call: `busy` (429 with Retry-After), `failing` (500), `slow` (the answer takes up to `slow_seconds`).
    Of lists, and of watches as they begin: `expired` (410). Of writes: `conflict` (409). Of reads and writes:
    `lost`, no answer: for writes in equal parts before it happened, after it, and before it happens up to `LATEST`
    seconds later. Of each event of a watch: `late` (it and what follows come up to `slow_seconds` later), `cut`
    (the watch ends or breaks instead).
    """

    conflict: float = 0.0
    expired: float = 0.0
    busy: float = 0.0
    failing: float = 0.0
    lost: float = 0.0
    slow: float = 0.0
    late: float = 0.0
    cut: float = 0.0
    slow_seconds: float = 3.0

    @classmethod
    def bad(cls) -> "Rates":
        """A bad day: every seventh write or so goes wrong, a watch lasts for some hundred events."""
        return cls(conflict=0.03, expired=0.02, busy=0.02, failing=0.03, lost=0.06, slow=0.1, late=0.05, cut=0.01)


class TroubleClient(Client):
    """Calls meet trouble as `rates` say, drawn from `chance`."""

    def __init__(self, transport: Transport, chance: random.Random, rates: Rates = Rates()) -> None:
        super().__init__(transport)
        self.rates = rates
        self._chance = chance
        self._dark_until = 0.0
        self._gates: dict[str, asyncio.Event] = {}
        """Of kinds whose changes are held."""
        self._arriving: set[asyncio.Task[None]] = set()

    def blackout(self, seconds: float) -> None:
        """For so long from now nothing gets through: calls fail, and watches break instead of delivering more."""
        self._dark_until = asyncio.get_running_loop().time() + seconds

    def hold(self, resource: Resource[Any], seconds: float) -> None:
        """For so long from now watches of that kind deliver nothing, and then what happened meanwhile."""
        gate = self._gates[_kind(resource)] = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, gate.set)

    def let_go(self) -> None:
        """Watches deliver what is held."""
        for gate in self._gates.values():
            gate.set()

    async def request(self, call: Call) -> bytes:
        await self._meet(call)
        if call.writes and self._happens(self.rates.conflict):
            raise Conflict(
                409, "Conflict", f"{call}: the object has been modified; please apply your changes again"
            )
        if call.verb == "list" and self._happens(self.rates.expired):
            raise Expired(410, "Expired", f"{call}: the continue token is too old")
        if self._happens(self.rates.lost):
            await self._lose(call)
        answer = await super().request(call)
        await self._slow()
        self._check(call)
        return answer

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        await self._meet(call)
        if self._happens(self.rates.expired):
            raise Expired(410, "Expired", f"{call}: too old resource version")
        async for event in super().stream(call):
            if self._happens(self.rates.late):
                await asyncio.sleep(self._chance.uniform(0, self.rates.slow_seconds))
            if (gate := self._gates.get(_kind(call.resource))) is not None:
                await gate.wait()
            self._check(call)
            if self._happens(self.rates.cut):
                if self._happens(0.5):
                    return
                raise _lost(call)
            yield event

    async def _meet(self, call: Call) -> None:
        """What may befall every call before it gets through."""
        self._check(call)
        if self._happens(self.rates.busy):
            raise TooManyRequests(429, "TooManyRequests", f"{call}: too many requests", self._chance.randint(1, 3))
        if self._happens(self.rates.failing):
            raise ServerError(500, "InternalError", f"{call}: etcdserver: request timed out")

    async def _slow(self) -> None:
        if self._happens(self.rates.slow):
            await asyncio.sleep(self._chance.uniform(0, self.rates.slow_seconds))

    async def _lose(self, call: Call) -> None:
        """Raise OutcomeUnknown; a write has happened, or will, or never does."""
        way = self._chance.randrange(3) if call.writes else 0
        if way == 1:
            await super().request(call)
        elif way == 2:
            self._send_later(call, self._chance.uniform(0, LATEST))
        raise _lost(call)

    def _send_later(self, call: Call, seconds: float) -> None:
        async def arrive() -> None:
            await asyncio.sleep(seconds)
            await super(TroubleClient, self).request(call)

        task = asyncio.get_running_loop().create_task(arrive(), name=LATE_WRITE)
        self._arriving.add(task)
        task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        """The response is lost, whatever it is."""
        self._arriving.discard(task)
        if not task.cancelled():
            task.exception()

    def _check(self, call: Call) -> None:
        if self._dark_until and asyncio.get_running_loop().time() < self._dark_until:
            raise _lost(call)

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self._chance.random() < rate


def _kind(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}"


def _lost(call: Call) -> OutcomeUnknown:
    return OutcomeUnknown(f"{call}: connection lost")
