"""A class's status says whether its driver is there and how much is free, and costs a write every few seconds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.conditions import condition, ready
from tests.unit.control.builders import TOKENS, World, played

from parley.api.models import ResourceClass
from parley.api.names import driver_lease
from parley.api.resources import CLASSES, LEASES
from parley.control.claims.podclaims import NODES
from parley.control.class_statuses import SECONDS, ClassStatuses
from parley.control.presence import DriverPresence
from parley.drivers.tokens import TokensDriver
from parley.kube.client import NotFound
from parley.kube.clock import rfc3339
from parley.kube.queue import WorkQueue, run_workers
from parley.sdk import Capacity, ClassOnNodes, Held

OUTSIDE = "disks.example.com"
SYSTEM = "parley-system"


class Watched:
    """The statuses of a world's classes, kept while a test runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.presence = DriverPresence(world.client, SYSTEM, world.state.drivers)
        queue: WorkQueue[str] = WorkQueue()
        drivers = world.state.drivers
        self.statuses = ClassStatuses(
            world.client, world.cluster, world.state.moved, drivers, self.presence, queue, world.clock
        )
        self.queue = queue

    async def the_class(self, name: str = "licence") -> ResourceClass:
        return await self._world.admin.get(CLASSES, name)

    async def counts(self) -> tuple[int | None, int | None]:
        status = (await self.the_class()).status
        return status.total, status.free

    @property
    def writes(self) -> int:
        return len([call for call in self._world.writes if call.resource.plural == CLASSES.plural])


@asynccontextmanager
async def watched(world: World) -> AsyncIterator[Watched]:
    kept = Watched(world)
    tasks = [asyncio.create_task(kept.statuses.run())]
    tasks.append(asyncio.create_task(run_workers(kept.queue, kept.statuses.sync, 1)))
    try:
        await asyncio.sleep(1)
        yield kept
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()


def held(number: int, count: int = 1) -> Held:
    return Held(f"uid-{number}", "node-1", (), {"pool": "licence", "node": "node-1", "count": count})


def test_a_class_of_a_driver_in_the_controller_is_ready_and_says_what_is_free() -> None:
    async def story(world: World) -> None:
        await world.class_(pool=4)
        world.state.drivers[TOKENS].restore(held(1, 3))
        async with watched(world) as kept:
            class_ = await kept.the_class()
            assert (ready(class_), await kept.counts()) == ("InController", (4, 1))
            found = condition(class_, "Ready")
            assert found.message == f"driver {TOKENS} runs in the controller"
            assert found.observed_generation == class_.metadata.generation == 1

    played(story)


def test_a_pool_on_each_node_counts_the_nodes_where_the_class_can_be_had() -> None:
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}

    async def story(world: World) -> None:
        for node in ("node-1", "node-2"):
            await world.node(node)
        await world.class_(parameters={"pool": 3, "scope": "Node"})
        world.state.drivers[TOKENS].restore(held(1))
        async with watched(world) as kept:
            assert await kept.counts() == (6, 5)
            await world.admin.patch(CLASSES, "licence", {"suitableNodes": {"nodeSelectorTerms": [only]}})
            await world.seen()
            kept.statuses.wake(("class", "licence"))
            await asyncio.sleep(SECONDS)
            assert await kept.counts() == (3, 2)
            await world.admin.patch(CLASSES, "licence", {"suitableNodes": None})
            await world.node("node-3")
            kept.statuses.wake(NODES)
            await asyncio.sleep(2 * SECONDS)
            assert await kept.counts() == (9, 8)

    played(story)


def test_a_burst_of_a_thousand_claims_costs_a_write_or_two() -> None:
    async def story(world: World) -> None:
        await world.class_(pool=5000)
        async with watched(world) as kept:
            assert kept.writes == 1
            for number in range(1000):
                world.state.drivers[TOKENS].restore(held(number))
                kept.statuses.wake(("driver", TOKENS), {"node-1"})
                kept.statuses.wake(("class", "licence"))
                await asyncio.sleep(0.02)
            await asyncio.sleep(2 * SECONDS)
            assert await kept.counts() == (5000, 4000)
            assert kept.writes <= 1 + 40 / SECONDS
            before = world.server.resource_version
            await asyncio.sleep(600)
            assert world.server.resource_version == before, "nothing changes any more"

    played(story)


def test_a_driver_is_not_asked_again_while_nothing_changes() -> None:
    class Counted(TokensDriver):
        asked = 0

        def capacity(self, of: ClassOnNodes[Any]) -> Capacity:
            Counted.asked += 1
            return super().capacity(of)

    async def story(world: World) -> None:
        await world.class_()
        async with watched(world):
            await asyncio.sleep(20 * SECONDS)
            assert Counted.asked == 1
            world.state.drivers[TOKENS].restore(held(1))
            await asyncio.sleep(20 * SECONDS)
            assert Counted.asked == 2

    played(story, Counted())


@pytest.mark.parametrize("given", [Capacity(3, 4), Capacity(-1, -1), "many", RuntimeError("out of order")])
def test_a_driver_that_fails_over_it_is_the_reason_that_the_class_is_not_ready(given: Any) -> None:
    class Odd(TokensDriver):
        name = TOKENS

        def capacity(self, of: ClassOnNodes[Any]) -> Capacity:
            if isinstance(given, Exception):
                raise given
            return given  # type: ignore[no-any-return]

    async def story(world: World) -> None:
        await world.class_()
        async with watched(world) as kept:
            assert ready(await kept.the_class()) == "DriverFailed"
            assert await kept.counts() == (None, None)

    played(story, Odd())


def test_parameters_that_the_driver_refuses_are_named() -> None:
    async def story(world: World) -> None:
        await world.class_(parameters={"pol": 4})
        async with watched(world) as kept:
            class_ = await kept.the_class()
            assert ready(class_) == "ParametersInvalid"
            assert "class licence" in condition(class_, "Ready").message
            assert "pol" in condition(class_, "Ready").message
            await world.admin.patch(CLASSES, "licence", {"parameters": {"pool": 4, "pol": None}})
            await world.seen()
            kept.statuses.wake(("class", "licence"))
            await asyncio.sleep(SECONDS)
            assert (ready(await kept.the_class()), await kept.counts()) == ("InController", (4, 4))
            assert condition(await kept.the_class(), "Ready").observed_generation == 2

    played(story)


async def renew(world: World, holder: str = "disks-0", **spec: Any) -> None:
    body = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": rfc3339(world.clock()), **spec}
    name = driver_lease(OUTSIDE)
    try:
        await world.admin.patch(LEASES, name, {"spec": body}, SYSTEM)
    except NotFound:
        await world.admin.create(LEASES, {"metadata": {"name": name}, "spec": body}, SYSTEM)


def test_a_standalone_driver_is_there_while_it_renews_its_lease() -> None:
    async def story(world: World) -> None:
        await world.class_(driver=OUTSIDE)
        async with watched(world) as kept:
            assert ready(await kept.the_class()) == "DriverMissing"
            assert condition(await kept.the_class(), "Ready").message == (
                "driver disks.example.com does not run: it is not in the controller, nobody renews Lease "
                "parley-system/parley-driver-disks.example.com, and no question was answered: start it, or "
                "correct driverName"
            )
            for _ in range(10):
                await renew(world)
                await asyncio.sleep(5)
            class_ = await kept.the_class()
            assert (ready(class_), class_.status.total) == ("Ready", None)
            await asyncio.sleep(60)
            assert ready(await kept.the_class()) == "DriverMissing", "it is not renewed any more"
            await renew(world)
            await asyncio.sleep(2 * SECONDS)
            assert ready(await kept.the_class()) == "Ready"
            await renew(world, holder="")
            await asyncio.sleep(2 * SECONDS)
            assert ready(await kept.the_class()) == "DriverMissing", "it gave its Lease up"

    played(story)


def test_a_driver_without_a_lease_is_there_from_an_answer_until_it_is_silent() -> None:
    async def story(world: World) -> None:
        await world.class_(driver=OUTSIDE)
        async with watched(world) as kept:
            kept.presence.answered(OUTSIDE)
            await asyncio.sleep(2 * SECONDS)
            assert condition(await kept.the_class(), "Ready").message == f"driver {OUTSIDE} answers"
            kept.presence.silent(OUTSIDE)
            await asyncio.sleep(2 * SECONDS)
            assert ready(await kept.the_class()) == "DriverMissing"

    played(story)


def test_a_class_that_goes_is_forgotten_and_a_new_one_of_its_name_is_looked_at() -> None:
    async def story(world: World) -> None:
        await world.class_(pool=4)
        async with watched(world) as kept:
            await world.delete(CLASSES, "licence")
            kept.statuses.wake(("class", "licence"))
            await asyncio.sleep(1)
            await world.class_(pool=7)
            await asyncio.sleep(SECONDS)
            assert await kept.counts() == (7, 7)

    played(story)
