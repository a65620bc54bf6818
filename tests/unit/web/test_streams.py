"""When open pages are told of changes, how often, and by how many makers."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TypeVar

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.web.conftest import Play, at, one_runs_and_one_waits, snapshots

from parley.web.pages import Page, page
from parley.web.streams import TICK, Feed, Streams, TooMany

T = TypeVar("T")


class Watched:
    """Works where it is asked, and counts how often; or fails."""

    def __init__(self, *, failing: bool = False) -> None:
        self.failing = failing
        self.asked = 0

    async def __call__(self, make: Callable[[], Awaitable[T]]) -> T:
        self.asked += 1
        if self.failing:
            raise RuntimeError("a bug")
        return await make()


async def collect(feed: Feed, seconds: float, version: str = "") -> list[tuple[float, Page]]:
    """What a reader gets within the time, and when."""
    loop, got = asyncio.get_running_loop(), []
    started = loop.time()
    try:
        async with asyncio.timeout(seconds):
            while True:
                made = await feed.other_than(version)
                version = made.version
                got.append((loop.time() - started, made))
    except TimeoutError:
        return got


def test_a_page_follows_the_cluster(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        made = snapshots(world)
        streams = Streams(made)
        version = (await page(made, at("/pods/default/wants"))).version
        async with streams.following(at("/pods/default/wants")) as feed:
            reading = asyncio.create_task(collect(feed, 25, version))
            await asyncio.sleep(3)
            await world.publish("b", ["gpu-0"])
            got = await reading

        assert "Pod default/wants has been bound to b" in got[-1][1].main
        first = next(at_ for at_, made_ in got if "has been bound to b" in made_.main)
        assert 3 < first < 8
        await made.close()

    play(scenario)


def test_a_page_that_reads_the_same_is_not_sent_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        made = snapshots(world)
        version = (await page(made, at("/nodes/b"))).version
        async with Streams(made).following(at("/nodes/b")) as feed:
            reading = asyncio.create_task(collect(feed, 60, version))
            for number in range(5):
                await world.add_pod(f"plain-{number}")
                await asyncio.sleep(5)

            assert await reading == []
        await made.close()

    play(scenario)


def test_many_changes_are_told_together_at_most_once_a_second(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        made = snapshots(world)
        async with Streams(made).following(at("/")) as feed:
            reading = asyncio.create_task(collect(feed, 10))
            for number in range(90):
                await world.add_pod(f"more-{number}", "one")
                await asyncio.sleep(0.1)
            got = await reading

        assert 5 <= len(got) <= 11
        assert all(later - earlier >= 0.99 for (earlier, _), (later, _) in pairwise(got))
        await made.close()

    play(scenario)


def test_ages_grow_without_any_change(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        made = snapshots(world)
        async with Streams(made).following(at("/")) as feed:
            got = await collect(feed, 3 * TICK + 1)

        assert len(got) >= 3
        assert "75 s" not in got[0][1].main
        await made.close()

    play(scenario)


def test_however_many_read_a_page_it_is_made_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        aside = Watched()
        made = snapshots(world, aside=aside)
        streams = Streams(made)
        contexts = [streams.following(at("/nodes/a")) for _ in range(20)]
        feeds = [await context.__aenter__() for context in contexts]
        assert streams.followers == 20
        got = await asyncio.gather(*(collect(feed, 0.5) for feed in feeds))

        assert {page_.version for pages in got for _, page_ in pages} == {got[0][0][1].version}
        assert aside.asked == 2  # the world, and the page
        for context in contexts:
            await context.__aexit__(None, None, None)
        assert streams.followers == 0
        await asyncio.sleep(60)
        assert aside.asked == 2
        await made.close()

    play(scenario)


def test_there_are_only_so_many_streams(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        made = snapshots(world)
        streams = Streams(made, most=2)
        async with streams.following(at("/")), streams.following(at("/nodes/a")):
            with pytest.raises(TooMany):
                async with streams.following(at("/")):
                    pass
        async with streams.following(at("/")):
            pass
        await made.close()

    play(scenario)


def test_a_page_that_can_not_be_made_is_tried_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        aside = Watched(failing=True)
        made = snapshots(world, aside=aside)
        async with Streams(made).following(at("/")) as feed:
            assert await collect(feed, 5) == []
            aside.failing = False
            assert len(await collect(feed, 15)) >= 1
        await made.close()

    play(scenario)
