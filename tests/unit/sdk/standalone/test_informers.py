"""A standalone driver's informers: a write of its own shows at once, and gives way to what is newer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.sdk.standalone.world import NAMESPACE, LaggingClient, World, informed

from parley.api.resources import CLAIMS
from parley.sdk.standalone.informers import Informers
from parley.simulate.virtual_time import run

KEY = (NAMESPACE, "disk")


def with_lag(scenario: Callable[[World, Informers], Awaitable[None]]) -> None:
    """Plays it with one claim, and watches that bring everything three seconds late."""

    async def main() -> None:
        world = World()
        await world.add_class()
        await world.add_claim("disk")
        async with informed(LaggingClient(world.server.client())) as informers:
            await scenario(world, informers)

    run(main())


def label(informers: Informers) -> str:
    claim = informers.claim(KEY)
    assert claim is not None
    return claim.metadata.labels.get("step", "")


async def write(world: World, step: str) -> Any:
    return await world.client.patch(CLAIMS, "disk", {"metadata": {"labels": {"step": step}}}, NAMESPACE)


def test_an_own_write_shows_before_the_watch_brings_it() -> None:
    async def scenario(world: World, informers: Informers) -> None:
        written = await write(world, "1")
        assert label(informers) == ""
        informers.note_written(written)
        assert label(informers) == "1"

    with_lag(scenario)


def test_an_older_write_does_not_hide_a_newer_one_nor_what_the_watch_brings() -> None:
    async def scenario(world: World, informers: Informers) -> None:
        first, second = await write(world, "1"), await write(world, "2")
        informers.note_written(second)
        informers.note_written(first)
        assert label(informers) == "2"
        await write(world, "3")
        await asyncio.sleep(15)
        assert label(informers) == "3"
        informers.note_written(second)
        assert label(informers) == "3"

    with_lag(scenario)


def test_what_the_server_no_longer_has_is_gone_though_the_watch_is_late() -> None:
    async def scenario(world: World, informers: Informers) -> None:
        claim = await world.claim("disk")
        await world.delete("disk")
        assert informers.claim(KEY) is not None
        informers.note_deleted(CLAIMS, KEY, claim.metadata.uid)
        assert informers.claim(KEY) is None

    with_lag(scenario)


def test_a_claim_made_anew_under_the_name_of_a_lost_one_is_there() -> None:
    async def scenario(world: World, informers: Informers) -> None:
        before = await world.claim("disk")
        await world.delete("disk")
        informers.note_deleted(CLAIMS, KEY, before.metadata.uid)
        await world.add_claim("disk")
        await asyncio.sleep(15)
        found = informers.claim(KEY)
        assert found is not None
        assert found.metadata.uid != before.metadata.uid

    with_lag(scenario)


def test_it_finds_what_asks_for_a_claim_and_what_is_of_a_class() -> None:
    async def scenario(world: World, informers: Informers) -> None:
        await world.ask("pod", "disk", nodes=["a"])
        await asyncio.sleep(15)
        (scheduling,) = informers.schedulings_of(KEY)
        assert informers.claim_keys(scheduling) == [KEY]
        assert [claim.metadata.name for claim in informers.claims_of_class("disk")] == ["disk"]
        assert informers.schedulings_of((NAMESPACE, "other")) == []

    with_lag(scenario)
