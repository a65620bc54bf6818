"""A kind that most clusters need not read is listed when somebody first wants it, and not waited for long."""

import asyncio

from tests.unit.control.builders import World, metadata, played

from parley.api.resources import VOLUME_CLAIMS
from parley.api.volumes import PersistentVolumeClaim
from parley.control.caches.wanted import SYNC_SECONDS, WantedInformer
from parley.kube.client import Call, Forbidden
from parley.kube.informer import Informer


async def begun(world: World) -> tuple[WantedInformer[PersistentVolumeClaim], asyncio.Task[None]]:
    """Nobody wants it yet; there is one claim. The task is to be kept."""
    await world.put(VOLUME_CLAIMS, {"metadata": {"name": "data"}})
    wanted = WantedInformer(Informer(world.client, VOLUME_CLAIMS))
    return wanted, asyncio.create_task(wanted.run())


def test_nothing_is_read_before_it_is_wanted() -> None:
    async def story(world: World) -> None:
        wanted, _running = await begun(world)
        await asyncio.sleep(60)
        assert (wanted.is_wanted, wanted.informer.synced.is_set()) == (False, False)
        await wanted.synced()  # which nobody waits for then

        wanted.want()
        await wanted.synced()

        assert (wanted.is_wanted, wanted.settled) == (True, True)
        assert wanted.informer.get(metadata("data")["namespace"], "data") is not None

    played(story)


def test_where_it_may_not_be_read_the_wait_ends_all_the_same() -> None:
    async def story(world: World) -> None:
        def refuse(_: Call) -> None:
            raise Forbidden(403, "Forbidden", "not yours")

        wanted, _running = await begun(world)
        world.before = refuse
        wanted.want()
        assert not wanted.settled

        before = asyncio.get_running_loop().time()
        await wanted.synced()

        assert asyncio.get_running_loop().time() - before == SYNC_SECONDS
        assert (wanted.settled, wanted.informer.synced.is_set()) == (True, False)

    played(story)


def test_that_it_is_wanted_again_does_not_prolong_the_wait() -> None:
    async def story(world: World) -> None:
        wanted = WantedInformer(Informer(world.client, VOLUME_CLAIMS))
        wanted.want()
        await asyncio.sleep(SYNC_SECONDS - 1)
        wanted.want()
        assert not wanted.settled
        await asyncio.sleep(1)
        assert wanted.settled

    played(story)
