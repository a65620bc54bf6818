"""Trouble by chance: each kind of it, its absence, and that a seed decides all of it."""

import asyncio
import random
from typing import Any

import pytest
from tests.support.trouble import LATEST, Rates, TroubleClient

from parley.api.resources import Resource
from parley.kube.client import (
    Client,
    Conflict,
    EventType,
    Expired,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
)
from parley.kube.memory import MemoryServer
from parley.simulate.virtual_time import run

CALM = Rates()
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, dict[str, Any])
BODY = {"metadata": {"name": "a"}}


def troubled(server: MemoryServer, rates: Rates = CALM, seed: int = 0) -> TroubleClient:
    return TroubleClient(server.client(), random.Random(seed), rates)


async def there(server: MemoryServer) -> bool:
    try:
        await server.client().get(CONFIG_MAPS, "a", "default")
    except NotFound:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "error"), [("conflict", Conflict), ("busy", TooManyRequests), ("failing", ServerError)]
)
def test_a_refused_write_did_not_happen(kind: str, error: type[Exception]) -> None:
    async def main() -> None:
        server = MemoryServer()
        with pytest.raises(error):
            await troubled(server, Rates(**{kind: 1.0})).create(CONFIG_MAPS, BODY, "default")
        assert not await there(server)

    run(main())


def test_a_busy_server_says_when_to_come_again() -> None:
    async def main() -> None:
        with pytest.raises(TooManyRequests) as caught:
            await troubled(MemoryServer(), Rates(busy=1.0)).list(CONFIG_MAPS)
        assert caught.value.retry_after in (1, 2, 3)

    run(main())


def test_lists_and_watches_expire_and_gets_do_not() -> None:
    async def main() -> None:
        server = MemoryServer()
        client = troubled(server, Rates(expired=1.0))
        await client.create(CONFIG_MAPS, BODY, "default")
        await client.get(CONFIG_MAPS, "a", "default")
        with pytest.raises(Expired):
            await client.list(CONFIG_MAPS)
        with pytest.raises(Expired):
            await anext(client.watch(CONFIG_MAPS, resource_version="1"))

    run(main())


def test_a_lost_write_happened_or_will_or_never_does() -> None:
    async def course(seed: int) -> str:
        server = MemoryServer()
        with pytest.raises(OutcomeUnknown):
            await troubled(server, Rates(lost=1.0), seed).create(CONFIG_MAPS, BODY, "default")
        at_once = await there(server)
        await asyncio.sleep(LATEST)
        await asyncio.sleep(0)
        return "at once" if at_once else "later" if await there(server) else "never"

    courses = [run(course(seed)) for seed in range(40)]
    assert set(courses) == {"at once", "later", "never"}
    assert courses == [run(course(seed)) for seed in range(40)]


def test_slow_answers_come_after_the_write_happened() -> None:
    async def main() -> float:
        server = MemoryServer()
        client = troubled(server, Rates(slow=1.0, slow_seconds=5.0))
        writing = asyncio.ensure_future(client.create(CONFIG_MAPS, BODY, "default"))
        await asyncio.sleep(0.01)
        assert await there(server)
        assert not writing.done()
        await writing
        return asyncio.get_running_loop().time()

    assert 0.01 < run(main()) <= 5.0


async def watched(client: Client, server: MemoryServer) -> list[str]:
    """What a watch tells of twenty objects, and how it ends."""
    stream = client.watch(CONFIG_MAPS, resource_version="1")
    for number in range(20):
        await server.client().create(CONFIG_MAPS, {"metadata": {"name": f"c{number:02}"}}, "default")
    told: list[str] = []
    try:
        async for event in stream:
            assert event.type is EventType.ADDED
            assert event.object is not None
            told.append(event.object["metadata"]["name"])
            if len(told) == 20:
                return [*told, "all"]
    except OutcomeUnknown:
        return [*told, "broken"]
    return [*told, "ended"]


def test_watches_end_or_break_and_leave_nothing_out_before() -> None:
    async def main(seed: int) -> list[str]:
        server = MemoryServer()
        return await watched(troubled(server, Rates(cut=0.1), seed), server)

    courses = [run(main(seed)) for seed in range(30)]
    assert {course[-1] for course in courses} == {"ended", "broken", "all"}
    for *told, _ in courses:
        assert told == [f"c{number:02}" for number in range(len(told))]


def test_late_events_keep_their_order() -> None:
    async def main() -> float:
        server = MemoryServer()
        assert (await watched(troubled(server, Rates(late=0.5)), server))[-1] == "all"
        return asyncio.get_running_loop().time()

    assert run(main()) > 1


def test_in_a_blackout_nothing_gets_through() -> None:
    async def main() -> None:
        server = MemoryServer()
        client = troubled(server)
        stream = client.watch(CONFIG_MAPS, resource_version="1")
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1)
        client.blackout(30)
        with pytest.raises(OutcomeUnknown):
            await client.list(CONFIG_MAPS)
        with pytest.raises(OutcomeUnknown):
            await client.create(CONFIG_MAPS, BODY, "default")
        await server.client().create(CONFIG_MAPS, BODY, "default")
        with pytest.raises(OutcomeUnknown):
            await following
        await asyncio.sleep(29.9)
        with pytest.raises(OutcomeUnknown):
            await client.get(CONFIG_MAPS, "a", "default")
        await asyncio.sleep(0.2)
        assert (await client.list(CONFIG_MAPS)).items

    run(main())


def test_without_rates_nothing_goes_wrong() -> None:
    async def main() -> None:
        server = MemoryServer()
        assert (await watched(troubled(server), server))[-1] == "all"
        assert asyncio.get_running_loop().time() == 0

    run(main())
