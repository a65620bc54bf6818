"""Objects that can't be decoded are told of one at a time, each with its latest state."""

import asyncio

from tests.unit.control.builders import NAMESPACE, World, played

from parley.api import reasons
from parley.api.resources import CLAIMS
from parley.control.caches.tombstones import PAUSE, Tombstones
from parley.kube.responses import Tombstone


def stone(name: str, reason: str) -> Tombstone:
    return Tombstone(NAMESPACE, name, f"uid-{name}", "1", reason)


def test_one_event_a_second_about_the_latest_state_of_each_object() -> None:
    async def story(world: World) -> None:
        tombstones = Tombstones(world.recorder)
        for name, reason in (("a", "first"), ("b", "other"), ("a", "latest")):
            tombstones.received(CLAIMS, stone(name, reason))
        running = asyncio.create_task(tombstones.run())
        await asyncio.sleep(PAUSE / 2)
        words = "Parley can't read this ResourceClaim and leaves it alone: "
        assert await world.events() == [(reasons.UNREADABLE, f"{words}latest")]
        await asyncio.sleep(PAUSE)
        assert (await world.events())[1:] == [(reasons.UNREADABLE, f"{words}other")]
        running.cancel()

    played(story)


def test_nothing_is_written_while_nothing_is_heard() -> None:
    async def story(world: World) -> None:
        tombstones = Tombstones(world.recorder)
        running = asyncio.create_task(tombstones.run())
        await asyncio.sleep(10)
        tombstones.received(CLAIMS, stone("a", "once"))
        await asyncio.sleep(10)
        assert len(await world.events()) == 1
        running.cancel()

    played(story)
