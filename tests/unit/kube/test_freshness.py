"""Since when and why a copy is not kept up to date, told in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

import pytest

from parley.api.resources import PODS
from parley.kube.backoff import Backoff
from parley.kube.client import Call, Client, Expired, Forbidden, RawEvent
from parley.kube.freshness import OPEN, Outage
from parley.kube.informer import Informer
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime

REFUSED = Forbidden(403, "Forbidden", "pods is forbidden")
WHY = "403 Forbidden: pods is forbidden"
STEADY = Backoff(first=1, longest=8)


class Refusing(Client):
    """Refuses these verbs, as long as they are in `refused`."""

    def __init__(self, server: MemoryServer, *refused: str, error: Exception = REFUSED) -> None:
        super().__init__(server.client())
        self.refused = set(refused)
        self._error = error

    async def request(self, call: Call) -> bytes:
        if call.verb in self.refused:
            raise self._error
        return await super().request(call)

    def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        return self._none() if call.verb in self.refused else super().stream(call)

    async def _none(self) -> AsyncGenerator[RawEvent, None]:
        raise self._error
        yield


async def outages(client: Refusing, seconds: Sequence[float]) -> list[Outage | None]:
    """What there is to tell after so many seconds each."""
    informer = Informer(client, PODS, backoff=STEADY)
    run = asyncio.create_task(informer.run())
    seen = []
    for pause in seconds:
        await asyncio.sleep(pause)
        seen.append(informer.outage())
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    return seen


async def test_a_kind_that_may_not_be_listed() -> None:
    assert await outages(Refusing(MemoryServer(), "list"), [30, 70]) == [Outage(30, WHY), Outage(100, WHY)]


async def test_a_kind_that_may_be_listed_and_not_watched() -> None:
    assert await outages(Refusing(MemoryServer(), "watch"), [30, 70]) == [Outage(30, WHY), Outage(100, WHY)]


async def test_a_quiet_watch_is_no_outage() -> None:
    server = MemoryServer(bookmark_interval=1e6)

    assert await outages(Refusing(server), [1, 600, 6_000]) == [None, None, None]


async def test_an_outage_ends_when_the_watch_is_open_again() -> None:
    server = MemoryServer(bookmark_interval=1e6)
    client = Refusing(server, "watch")

    async def allow() -> None:
        await asyncio.sleep(100)
        client.refused.clear()

    allowing = asyncio.create_task(allow())
    first, _, last = await outages(client, [99, 8 + OPEN, 1])
    await allowing
    assert (first, last) == (Outage(99, WHY), None)


async def test_a_server_that_forgets_everything_at_once_is_listed_again_and_again() -> None:
    gone = Expired(410, "Expired", "too old")

    (told,) = await outages(Refusing(MemoryServer(), "watch", error=gone), [100])

    assert told is None or told.seconds <= STEADY.longest


async def test_nothing_is_told_before_the_copy_is_begun() -> None:
    assert Informer(MemoryServer().client(), PODS).outage() is None
