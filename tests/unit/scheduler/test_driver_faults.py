"""What a driver raises concerns the claims and pods that it was called for: they are told, all else goes on."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.failing_drivers import (
    AT_ONCE,
    BOTH,
    NAMESPACE,
    Cancelling,
    Failing,
    Hanging,
    with_tokens,
)

from parley.api import reasons
from parley.api.resources import CLAIM_RELEASES, CLAIMS, CLASSES, PODS
from parley.simulate.kubelet import UNPREPARE_SECONDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


@BOTH
@pytest.mark.parametrize("method", AT_ONCE)
def test_pods_of_a_driver_that_fails_are_told_and_go_on_when_it_works_again(
    play: Any, scheduling_path: str, method: str
) -> None:
    async def scenario(world: World) -> None:
        driver = Failing(method)
        await with_tokens(world, driver)
        await world.add_pod("p", "seat")
        await world.add_pod("q", "one")
        await world.settle(quiet=1.0)

        assert await world.node_of("q")
        if scheduling_path == "extender" and method == "score":
            return  # asked once the filter is answered: any of its nodes will do
        scheduling = await world.scheduling("p")
        words = f"driver tokens.parley.dev failed in {method}: KeyError: '{method}'"
        assert (scheduling.status.waiting_for, scheduling.status.message) == (reasons.DRIVER_FAILED, words)
        assert await world.events_on("p") == [(reasons.DRIVER_FAILED, words)]
        assert not await world.node_of("p")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert await world.node_of("p")

    play(scenario)


@BOTH
@pytest.mark.parametrize("methods", [("allocate",), ("deallocate",), ("allocate", "deallocate")], ids=str)
def test_a_driver_that_hangs_keeps_nobody_elses_pods_waiting(play: Any, methods: tuple[str, ...]) -> None:
    async def scenario(world: World) -> None:
        driver = Hanging()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 40}})
        if "allocate" in methods:
            driver.failing.update(methods)
        for i in range(40):
            await world.add_pod(f"p{i}", "seat")
        await asyncio.sleep(20)
        driver.failing.update(methods)
        for i in range(40):
            await world.delete_pod(f"p{i}")
        for i in range(40):
            await world.add_pod(f"q{i}", "seat")
        for number in range(8):
            await world.add_pod(f"other-{number}", "one")
            await asyncio.sleep(2)
            assert await world.node_of(f"other-{number}")
            await world.delete_pod(f"other-{number}")
            await asyncio.sleep(29)

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert all([await world.node_of(f"q{i}") for i in range(40)])

    play(scenario)


@pytest.mark.parametrize("method", ["allocate", "deallocate"])
def test_nor_do_its_immediate_claims_keep_other_claims_waiting(play: Any, method: str) -> None:
    async def scenario(world: World) -> None:
        driver = Hanging()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 40}})
        if method == "allocate":
            driver.failing.add(method)
        for i in range(40):
            await world.add_claim(f"c{i}", "seats", "Immediate", count=1)
        await asyncio.sleep(20)
        driver.failing.add(method)
        for i in range(40):
            await world.client.delete(CLAIMS, f"c{i}", "default")
        for minute in range(4):
            await world.add_claim(f"mine-{minute}")
            await world.add_pod(f"other-{minute}", claims=[f"mine-{minute}"])
            await asyncio.sleep(2)
            assert await world.node_of(f"other-{minute}")
            await asyncio.sleep(58)

    play(scenario)


def test_nor_do_its_claims_keep_those_waiting_whose_nodes_have_answered(play: Any) -> None:
    async def scenario(world: World) -> None:
        driver = Hanging()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 40}})
        await world.add_pod("first", "one")
        for i in range(40):
            await world.add_pod(f"p{i}", "seat")
        await world.settle()
        driver.failing.add("deallocate")
        for i in range(40):
            await world.delete_pod(f"p{i}")
        await asyncio.sleep(600)
        await world.force_delete("first")
        await asyncio.sleep(UNPREPARE_SECONDS + 2)
        assert not (await world.client.list(CLAIM_RELEASES)).items
        assert all(holding.class_name == "seats" for holding in world.ledger)

    play(scenario)


@BOTH
def test_what_other_drivers_allocated_for_pods_of_one_that_hangs_is_free_at_once(play: Any) -> None:
    """It was released after what the first driver had allocated: for each pod that takes half a minute."""

    async def scenario(world: World) -> None:
        driver = Hanging()
        await with_tokens(world, driver)
        await world.client.patch(CLASSES, "seats", {"parameters": {"pool": 40}})
        await world.add_node("c", devices=40)
        for i in range(40):
            await world.add_pod(f"p{i}", "seat", "one")
        await world.settle()
        driver.failing.add("deallocate")
        for i in range(40):
            await world.delete_pod(f"p{i}")
        for i in range(40):
            await world.add_pod(f"other-{i}", "one")
        await asyncio.sleep(30)
        assert all([await world.node_of(f"other-{i}") for i in range(40)])

    play(scenario)


@BOTH
@pytest.mark.parametrize("method", ["allocate", "deallocate", "viable", "units"])
def test_a_driver_that_cancels_its_own_work_ends_no_worker(play: Any, method: str) -> None:
    async def scenario(world: World) -> None:
        driver = Cancelling(method)
        await with_tokens(world, driver)
        for i in range(40):
            await world.add_pod(f"p{i}", "seat")
        await world.settle()
        for i in range(40):
            await world.client.delete(PODS, f"p{i}", NAMESPACE)
        await world.settle(quiet=1.0)
        await world.add_pod("other", "one")
        await world.settle(quiet=1.0)
        assert await world.node_of("other")

        driver.failing.clear()
        await world.settle(quiet=400.0)
        await world.add_template("all", "seats", count=3)
        await world.add_pod("r", "all")
        await world.settle()
        assert await world.node_of("r")

    play(scenario)


def test_immediate_claims_of_a_driver_that_fails_are_told(play: Any) -> None:
    async def scenario(world: World) -> None:
        driver = Failing("viable")
        await with_tokens(world, driver)
        await world.add_claim("c", "seats", mode="Immediate", count=1)
        await world.settle(quiet=1.0)

        said = {c.type: (c.reason, c.message) for c in (await world.claim("c")).status.conditions}
        words = "driver tokens.parley.dev failed in viable: KeyError: 'viable'"
        assert said[reasons.ALLOCATED] == (reasons.DRIVER_FAILED, words)

        driver.failing.clear()
        await world.settle(quiet=400.0)
        assert (await world.claim("c")).status.allocation is not None

    play(scenario)
