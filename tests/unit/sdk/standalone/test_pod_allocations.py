"""Pods whose node is selected: one attempt for each selection, failures reported, what is not wanted aborted."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.sdk.standalone.world import (
    DRIVER,
    Array,
    ArrayDriver,
    ShelfDriver,
    World,
    prepare,
    progress,
)

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES
from parley.kube.client import ServerError
from parley.sdk import PermanentError

Play = Callable[[Callable[[World], Any]], None]


def test_a_pod_that_was_bound_by_others_needs_no_question(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        world.start(ShelfDriver())
        await world.ask("pod", "disk", selected="b")
        await world.settle()

        assert await world.node_of("disk") == "b"

    play(scenario)


@pytest.mark.parametrize("error", [RuntimeError("array-1 is read-only"), PermanentError("no cable")])
def test_a_failure_is_reported_and_nothing_is_held(play: Play, array: Array, error: Exception) -> None:
    array.broken["a"] = error

    async def scenario(world: World) -> None:
        await prepare(world, "one", "two")
        array.stock["a"] = 2
        world.start(ArrayDriver(array))
        await world.ask("pod", "one", "two", nodes=["a", "b"])
        await world.settle()
        await world.select("pod", "a")
        await world.settle()

        for entry in (await world.answers("pod")).values():
            assert entry.failure is not None
            assert (entry.failure.node_name, entry.failure.message) == ("a", str(error))
            assert entry.failure.permanent == isinstance(error, PermanentError)
            assert (entry.round, entry.viable_nodes) == (1, ("a", "b"))
        assert array.volumes == {}
        assert array.calls["allocate"] == 1
        seen = await progress(world, "one")
        assert seen is not None
        assert (seen.status, seen.message) == ("False", str(error))

    play(scenario)


def test_a_failure_is_cleared_when_the_node_is_and_the_next_node_is_tried(play: Play, array: Array) -> None:
    array.broken["a"] = RuntimeError("read-only")

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        world.start(ArrayDriver(array))
        await world.ask("pod", "disk", nodes=["a", "b"], selected="a")
        await world.settle()
        assert (await world.answer("pod")).failure is not None
        await world.select("pod", "")
        await world.settle()
        assert (await world.answer("pod")).failure is None
        assert (await world.claim("disk")).metadata.finalizers == ()
        await world.select("pod", "b")
        await world.settle()

        assert (await world.answer("pod")).failure is None
        assert await world.node_of("disk") == "b"
        assert array.faults == []

    play(scenario)


def test_a_node_that_is_cleared_and_selected_at_once_again_is_a_new_attempt(play: Play, array: Array) -> None:
    array.broken["a"] = RuntimeError("read-only")

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        world.start(ArrayDriver(array))
        await world.ask("pod", "disk", nodes=["a"], selected="a")
        await world.settle()
        array.broken.clear()
        await world.select("pod", "")
        await world.select("pod", "a")
        await world.settle()

        assert (await world.answer("pod")).failure is None
        assert await world.node_of("disk") == "a"

    play(scenario)


def test_a_failure_that_was_reported_is_not_tried_again_after_a_restart(play: Play, array: Array) -> None:
    array.broken["a"] = RuntimeError("read-only")

    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        await world.ask("pod", "disk", nodes=["a"], selected="a")
        await world.kill_after_settling(ArrayDriver(array))
        world.start(ArrayDriver(array))
        await world.settle()
        assert array.calls["allocate"] == 1
        await world.ask("pod", "disk", nodes=["a"], round=2, selected="a")
        await world.settle()

        assert array.calls["allocate"] == 2

    play(scenario)


def test_a_slow_allocation_keeps_nobody_waiting(play: Play, array: Array) -> None:
    array.seconds = 300

    async def scenario(world: World) -> None:
        await prepare(world, "slow", "other")
        world.start(ArrayDriver(array))
        await world.ask("pod", "slow", selected="a")
        await asyncio.sleep(5)
        await world.ask("next", "other", nodes=["a", "b"])
        await asyncio.sleep(5)

        assert (await world.answer("next")).viable_nodes == ("b",)

    play(scenario)


@pytest.mark.parametrize("how", ["clear", "reselect", "end", "delete", "unlabel"])
def test_what_is_not_wanted_any_more_is_aborted(play: Play, array: Array, how: str) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "one", "two")
        array.stock["b"] = 4
        world.start(ArrayDriver(array))
        await world.ask("pod", "one", "two", nodes=["b", "c"], selected="b")
        await asyncio.sleep(5)
        assert len(array.volumes) == 2
        match how:
            case "clear":
                await world.select("pod", "")
            case "reselect":
                array.stock["c"] = 2
                await world.select("pod", "c")
            case "end":
                await world.end("pod")
            case "delete":
                await world.delete("one")
            case "unlabel":
                await world.unlabel("pod")
        await world.settle()

        assert {uid: node for uid, (node, _) in array.volumes.items()} == await world.recorded()
        assert set((await world.recorded()).values()) == ({"c"} if how == "reselect" else set())
        assert array.faults == []
        assert await world.exists("one") == (how != "delete")
        assert (await world.claim("two")).metadata.finalizers == (
            (driver_finalizer(DRIVER),) if how in ("reselect", "delete") else ()
        )

    play(scenario)


@pytest.mark.parametrize("how", ["reselect", "end"])
def test_the_pause_after_a_failed_write_ends_when_the_selection_does(play: Play, array: Array, how: str) -> None:
    async def scenario(world: World) -> None:
        down = True

        def fail(call: NumberedCall) -> None:
            if down and call.writes and call.resource == CLAIMS:
                raise ServerError(503, "ServiceUnavailable", "no leader")

        await prepare(world, "disk")
        world.start(ArrayDriver(array), FaultClient(world.server.client(), before=fail))
        await world.ask("pod", "disk", nodes=["a", "b"], selected="a")
        await asyncio.sleep(150)
        down = False
        if how == "reselect":
            await world.select("pod", "b")
        else:
            await world.end("pod")
            await world.ask("next", "disk", nodes=["a", "b"], selected="b")
        await asyncio.sleep(array.seconds + 1)

        assert await world.node_of("disk") == "b"

    play(scenario)


def test_what_is_recorded_stays_whatever_becomes_of_the_podscheduling(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        world.start(ArrayDriver(array))
        await world.ask("pod", "disk", selected="a")
        await world.settle()
        await world.select("pod", "b")
        await world.settle()
        await world.end("pod")
        await world.settle()

        assert await world.node_of("disk") == "a"
        assert len(array.volumes) == 1

    play(scenario)


def test_two_pods_that_select_nodes_for_one_claim_get_it_allocated_once(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "shared")
        world.start(ArrayDriver(array))
        await world.ask("first", "shared", selected="a")
        await world.ask("second", "shared", selected="b")
        await world.settle()

        assert await world.node_of("shared") == "a"
        assert array.calls["allocate"] == 1

    play(scenario)


def test_if_the_first_pod_fails_the_second_has_its_turn(play: Play, array: Array) -> None:
    array.broken["a"] = RuntimeError("read-only")

    async def scenario(world: World) -> None:
        await prepare(world, "shared")
        world.start(ArrayDriver(array))
        await world.ask("first", "shared", selected="a")
        await world.ask("second", "shared", selected="b")
        await world.settle()

        assert (await world.answer("first")).failure is not None
        assert await world.node_of("shared") == "b"
        assert array.faults == []

    play(scenario)


def test_parameters_that_became_bad_fail_the_selection(play: Play) -> None:
    async def scenario(world: World) -> None:
        await prepare(world, "disk")
        world.start(ShelfDriver())
        await world.client.patch(CLASSES, "disk", {"parameters": {"odd": 1}})
        await world.ask("pod", "disk", selected="a")
        await world.settle()

        failure = (await world.answer("pod")).failure
        assert failure is not None
        assert failure.message.startswith("parameters of class disk: odd=1 is not a parameter")

    play(scenario)
