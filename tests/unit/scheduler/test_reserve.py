"""Room on a node that is reserved for the users of a claim: a late big task fits, and others are kept out."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, SECOND_SCHEDULER, World
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api import reasons
from parley.api.resources import CLAIMS, NODES, PODS
from parley.drivers.workspace import WorkspaceDriver
from parley.sdk import Allocation

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


class Slow(WorkspaceDriver):
    """Takes a moment to allocate."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await asyncio.sleep(1)
        return await super().allocate(request, node)


async def message(world: World, pod: str) -> str:
    return (await world.scheduling(pod)).status.message


@pytest.mark.parametrize("reserves", [True, False])
def test_a_late_big_task_fits_beside_others_if_its_claim_reserves_the_room(play: Play, reserves: bool) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "6"} if reserves else None)
        for i in range(4):
            await claim(world, f"other-{i}")
        assert await task(world, "clone", "build") == "a"
        await world.finish_pod("clone")
        placed = [bool(await task(world, f"other-{i}", f"other-{i}", cpu="2")) for i in range(4)]
        late = await task(world, "late", "build", cpu="6")
        assert (placed, late) == (([True, False, False, False], "a") if reserves else ([True] * 4, ""))

    play(scenario)


def test_who_is_kept_out_is_told_by_whom_and_comes_when_the_claim_has_ended(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "7"})
        await claim(world, "other")
        await task(world, "clone", "build")
        await world.finish_pod("clone")
        assert await task(world, "kept-out", "other", cpu="2") == ""
        assert "node a: too little cpu left: 7 cpu are reserved for claim default/build" in await message(
            world, "kept-out"
        )
        await world.client.delete(CLAIMS, "build", NAMESPACE)
        await asyncio.sleep(20)
        assert await world.node_of("kept-out") == "a"

    play(scenario)


def test_a_claim_goes_where_there_is_room_for_what_it_reserves(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        await task(world, "big", cpu="6", nodeName="a", schedulerName="")
        await claim(world, "build", {"cpu": "4"})
        assert await task(world, "clone", "build", cpu="100m") == "b"
        record = (await world.claim("build")).status.allocation
        assert record is not None
        assert record.reserve is not None
        assert dict(record.reserve.amounts) == {"cpu": "4"}
        await claim(world, "second", {"cpu": "4"})
        assert await task(world, "next", "second", cpu="100m") == "b"
        await claim(world, "third", {"cpu": "4"})
        assert await task(world, "waits", "third", cpu="100m") == ""
        assert "too little cpu left to reserve 4 cpu for claim default/third" in await message(world, "waits")
        assert "3900m cpu are reserved for claim default/build" in await message(world, "waits")

    play(scenario)


def test_what_users_request_counts_against_the_reservation_first(play: Play) -> None:
    """The larger of the two is used, never the sum."""

    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "4"})
        for name in ("beside", "too-much"):
            await claim(world, name)
        assert await task(world, "one", "build", cpu="3") == "a"
        assert await task(world, "beside", "beside", cpu="4") == "a"
        assert await task(world, "too-much", "too-much", cpu="1") == ""
        assert "1 cpu is reserved for claim default/build" in await message(world, "too-much")
        assert await task(world, "two", "build", cpu="1") == "a"
        assert await task(world, "three", "build", cpu="1") == ""

    play(scenario)


@pytest.mark.parametrize("mode", ["", "Immediate"])
def test_pods_that_were_bound_before_their_claim_was_allocated_have_its_room(play: Play, mode: str) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        for i in range(2):
            await task(world, f"bound-{i}", "build", cpu="3", nodeName="a", schedulerName="")
        await claim(world, "too-much", {"cpu": "7"}, mode)
        await claim(world, "build", {"cpu": "6"}, mode)
        await world.settle()
        assert (await world.claim("too-much")).status.allocation is None
        assert (await world.claim("build")).status.allocation is not None

    play(scenario)


def test_pod_slots_are_reserved_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.client.patch(
            NODES,
            "a",
            {"status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "3"}}},
            subresource="status",
        )
        await claim(world, "build", {"pods": 2})
        for name in ("first", "second"):
            await claim(world, name)
        await task(world, "clone", "build")
        await world.finish_pod("clone")
        assert await task(world, "first", "first") == "a"
        assert await task(world, "second", "second") == ""
        assert "no pod slots left: 2 pod slots are reserved for claim default/build" in await message(
            world, "second"
        )
        assert [await task(world, f"build-{i}", "build") for i in range(2)] == ["a", "a"]

    play(scenario)


def test_a_new_controller_knows_what_is_reserved(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "build", {"memory": "12Gi", "cpu": "6"})
        await claim(world, "other")
        await task(world, "clone", "build")
        await world.finish_pod("clone")
        await world.crash()
        world.start_parley(drivers=[WorkspaceDriver()])
        await world.settle()
        assert await task(world, "kept-out", "other", cpu="3") == ""
        assert await task(world, "late", "build", cpu="6") == "a"

    play(scenario)


def test_pods_that_are_not_bound_yet_count_for_a_new_controller(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "mine")
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "5"}}}
        await world.add_pod("slow", claims=["mine"], containers=[container], schedulerName="none-such")
        await asyncio.sleep(1)
        assert (await world.claim("mine")).status.allocation is not None
        await world.crash()
        world.start_parley(drivers=[WorkspaceDriver()])
        await claim(world, "build", {"cpu": "4"}, "Immediate")
        await asyncio.sleep(5)
        assert (await world.claim("build")).status.allocation is None
        await world.delete_pod("slow")
        await asyncio.sleep(20)
        assert (await world.claim("build")).status.allocation is not None

    play(scenario)


@pytest.mark.parametrize(
    ("most", "reserve", "fault"),
    [
        (None, {"cpu": "2"}, "reserve.cpu=2 of claim build is more than maxReserve.cpu=0 of class workspace"),
        (
            {"cpu": "1"},
            {"cpu": "1500m"},
            "reserve.cpu=1500m of claim build is more than maxReserve.cpu=1 of class",
        ),
        ({"cpu": "1"}, {"memory": "1Gi"}, "reserve.memory=1Gi of claim build is more than maxReserve.memory=0 of"),
        ({"cpu": "1"}, {"pods": 1}, "reserve.pods=1 of claim build is more than maxReserve.pods=0 of class"),
    ],
)
def test_a_claim_reserves_no_more_than_its_class_allows(
    play: Play, most: dict[str, Any] | None, reserve: dict[str, Any], fault: str
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", most=most)
        await claim(world, "build", reserve)
        assert await task(world, "clone", "build") == ""
        assert fault in await message(world, "clone")
        assert f"reserve less, or raise maxReserve.{next(iter(reserve))} of the class" in await message(
            world, "clone"
        )

    play(scenario)


def test_a_claim_of_one_pod_reserves_nothing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.add_template("one", "workspace", reserve={"cpu": "1"})
        await world.add_pod("clone", "one")
        await world.settle()
        assert await world.node_of("clone") == ""
        assert "created from a template for one pod, and no other pod uses it later" in await message(
            world, "clone"
        )

    play(scenario)


def test_claims_of_other_namespaces_are_not_named(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        body = {"metadata": {"name": "secret"}, "apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind}
        spec = {
            "resourceClassName": "workspace",
            "parameters": {"reserve": {"cpu": "8"}, "size": "1Mi"},
            "allocationMode": "Immediate",
        }
        await world.client.create(CLAIMS, {**body, "spec": spec}, "other")
        await claim(world, "mine")
        await world.settle()
        assert await task(world, "kept-out", "mine") == ""
        told = await message(world, "kept-out")
        assert "8 cpu are reserved for claims of other namespaces" in told
        assert "secret" not in told

    play(scenario)


def test_pods_that_come_at_the_same_moment_do_not_take_what_is_reserved(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        for i in range(8):
            await claim(world, f"build-{i}", {"cpu": "3"})
            await claim(world, f"other-{i}")
        kinds = ("build", "other")
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
        await asyncio.gather(
            *(
                world.add_pod(f"{kind}-{i}", claims=[f"{kind}-{i}"], containers=[container])
                for i in range(8)
                for kind in kinds
            )
        )
        await world.settle()
        for node in ("a", "b"):
            placed = [
                name for kind in kinds for i in range(8) if await world.node_of(name := f"{kind}-{i}") == node
            ]
            assert sum(3 if name.startswith("build") else 1 for name in placed) <= 8
            assert any(name.startswith("build") for name in placed)

    play(scenario)


def test_claims_that_are_allocated_at_the_same_time_do_not_reserve_the_same_room(play: Play) -> None:
    """When both drivers were asked there was room for either."""

    async def scenario(world: World) -> None:
        await begin(world, "a", driver=Slow)
        for name in ("one", "two"):
            await claim(world, name, {"cpu": "5"})
        await asyncio.gather(*(task(world, f"uses-{name}", name) for name in ("one", "two")))
        records = [(await world.claim(name)).status.allocation for name in ("one", "two")]
        assert sorted(record is None for record in records) == [False, True]
        waits = "one" if records[0] is None else "two"
        notes = [note for _, note in await world.events_on(f"uses-{waits}")]
        assert any("too little cpu left" in note for note in notes)

    play(scenario)


def test_who_waits_for_reserved_room_is_not_behind_one_who_can_not_have_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "4"})
        for name in ("mine", "full"):
            await claim(world, name)
        assert await task(world, "first", "build", cpu="4") == "a"
        assert await task(world, "was-here", "mine") == "a"
        assert await task(world, "fills", "full", cpu="3") == "a"
        await world.finish_pod("was-here")
        assert await task(world, "fills-too", "full", cpu="1") == "a"
        assert await task(world, "kept-out", "mine", cpu="2") == ""
        assert await task(world, "next", "build", cpu="2") == ""
        await world.finish_pod("first")
        await asyncio.sleep(20)
        assert await world.node_of("next") == "a"
        assert await world.node_of("kept-out") == ""

    play(scenario)


def test_nobody_is_evicted_where_room_is_reserved(play: Play) -> None:
    """What a pod gives up there is not for the one that it would go for."""

    async def scenario(world: World) -> None:
        await begin(world, "a")
        for name in ("build", "mine"):
            await claim(world, name, {"cpu": "4"} if name == "build" else None)
        assert await task(world, "user", "build", cpu="4") == "a"
        assert await task(world, "beside", cpu="4", priority=0) == "a"
        assert await task(world, "urgent", "mine", cpu="4", priority=1000) == ""
        assert [await world.node_of(name) for name in ("user", "beside")] == ["a", "a"]
        assert await task(world, "urgent-too", cpu="4", priority=1000, schedulerName=SECOND_SCHEDULER) == ""
        assert [await world.node_of(name) for name in ("user", "beside")] == ["a", "a"]

    play(scenario)


class TestPodsWithoutClaims:
    """Parley keeps those of its second scheduler out, not those of others."""

    def test_of_the_second_scheduler_they_are_kept_out(self, play: Play) -> None:
        async def scenario(world: World) -> None:
            await begin(world, "a", "b")
            await claim(world, "build", {"cpu": "7"})
            await claim(world, "other", {"cpu": "7"})
            at = [await task(world, name, name) for name in ("build", "other")]
            for name in ("build", "other"):
                await world.finish_pod(name)
            plain = [await task(world, f"plain-{i}", schedulerName=SECOND_SCHEDULER) for i in range(3)]
            assert sorted(plain) == ["", "a", "b"]
            waiting = f"plain-{plain.index('')}"
            (event,) = [note for reason, note in await world.events_on(waiting) if reason == reasons.NO_CANDIDATES]
            assert "7 cpu are reserved for claim default/build" in event
            assert await task(world, "late", "build", cpu="7") == at[0]
            await world.client.delete(CLAIMS, "other", NAMESPACE)
            await asyncio.sleep(20)
            assert await world.node_of(waiting) == at[1]

        play(scenario)

    def test_many_at_once_do_not_take_it_either(self, play: Play) -> None:
        async def scenario(world: World) -> None:
            await begin(world, "a")
            await claim(world, "build", {"cpu": "4"})
            await task(world, "clone", "build")
            container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
            spec: dict[str, Any] = {"schedulerName": SECOND_SCHEDULER, "containers": [container]}
            await asyncio.gather(*(world.add_pod(f"plain-{i}", **spec) for i in range(8)))
            await world.settle()
            assert sum([bool(await world.node_of(f"plain-{i}")) for i in range(8)]) == 4

        play(scenario)

    def test_of_other_schedulers_they_are_not(self, play: Play) -> None:
        async def scenario(world: World) -> None:
            await begin(world, "a")
            await claim(world, "build", {"cpu": "7"})
            await task(world, "clone", "build")
            assert await task(world, "plain", cpu="7", schedulerName="default-scheduler") == "a"
            assert (await world.client.get(PODS, "plain", NAMESPACE)).spec.node_name == "a"

        play(scenario)
