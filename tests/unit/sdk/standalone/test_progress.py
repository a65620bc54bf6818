"""Progress of an allocation: the latest text in the claim's condition, every five seconds at most."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.faults import FaultClient
from tests.unit.sdk.standalone.world import NAMESPACE, World, informed

from parley.api.resources import CLAIMS
from parley.sdk.standalone.operations import ClaimRef, cancel
from parley.sdk.standalone.progress import Progress
from parley.sdk.standalone.records import StandaloneRecords
from parley.simulate.virtual_time import run


def reporting(scenario: Callable[[World, Progress, FaultClient], Awaitable[None]]) -> None:
    """Plays it with the progress of an allocation for the claims `one` and `two`."""

    async def main() -> None:
        world = World()
        await world.add_class()
        refs: list[ClaimRef] = []
        for name in ("one", "two"):
            await world.add_claim(name)
            refs.append(ClaimRef((NAMESPACE, name), (await world.claim(name)).metadata.uid))
        client = FaultClient(world.server.client())
        async with informed(client) as informers:
            progress = Progress(StandaloneRecords(client, informers, world.clock), refs)
            task = asyncio.create_task(progress.run())
            await scenario(world, progress, client)
            await cancel(task)

    run(main())


async def shown(world: World, claim: str) -> list[tuple[str, str, str]]:
    conditions = (await world.claim(claim)).status.conditions
    follows = ("Allocated", "Ready")
    return [(one.type, one.reason, one.message) for one in conditions if one.type not in follows]


def test_all_claims_of_the_allocation_show_it() -> None:
    async def scenario(world: World, progress: Progress, client: FaultClient) -> None:
        progress.report("attached")
        await asyncio.sleep(1)
        for claim in ("one", "two"):
            assert await shown(world, claim) == [("Allocating", "InProgress", "attached")]

    reporting(scenario)


def test_of_several_texts_within_five_seconds_the_last_is_written() -> None:
    async def scenario(world: World, progress: Progress, client: FaultClient) -> None:
        progress.report("0 %")
        await asyncio.sleep(1)
        before = world.server.resource_version
        for percent in (10, 20, 30):
            progress.report(f"{percent} %")
            await asyncio.sleep(1)
        assert await shown(world, "one") == [("Allocating", "InProgress", "0 %")]
        await asyncio.sleep(5)
        assert await shown(world, "one") == [("Allocating", "InProgress", "30 %")]
        assert world.server.resource_version == before + 2

    reporting(scenario)


def test_a_claim_that_is_gone_does_not_keep_the_others_from_showing_it() -> None:
    async def scenario(world: World, progress: Progress, client: FaultClient) -> None:
        await world.client.delete(CLAIMS, "one", NAMESPACE)
        progress.report("attached")
        await asyncio.sleep(1)
        assert await shown(world, "two") == [("Allocating", "InProgress", "attached")]

    reporting(scenario)
