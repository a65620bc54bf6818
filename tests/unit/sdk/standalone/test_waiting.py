"""Pods that wait for a driver: which are requeued when something changed, and which are not."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.faults import FaultClient
from tests.unit.sdk.standalone.world import Array, ArrayDriver, ShelfDriver, World

from parley.api.resources import NODES
from parley.sdk import Answer, Request
from parley.sdk.standalone.waiting import TURN_SECONDS, Outlook, WaitingPods
from parley.simulate.virtual_time import run

Play = Callable[[Callable[[World], Any]], None]


async def wait_for_disks(
    world: World, pods: int, nodes: int = 8, driver: ShelfDriver | None = None
) -> ShelfDriver:
    """So many pods are answered that no disk is left."""
    for number in range(nodes):
        await world.add_node(f"n{number}", 0)
    await world.add_class()
    driver = driver or ShelfDriver()
    for number in range(pods):
        await world.add_claim(f"disk-{number}")
    world.start(driver)
    for number in range(pods):
        await world.ask(f"pod-{number}", f"disk-{number}", nodes=[f"n{i}" for i in range(nodes)])
        await asyncio.sleep(0.1)
    await world.settle()
    return driver


def test_a_freed_disk_costs_a_thousand_waiting_pods_one_evaluation_and_one_write(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = await wait_for_disks(world, 1000)
        driver.evaluated.clear()
        before = world.server.resource_version
        await world.set_disks("n3", 1)
        await asyncio.sleep(5)

        assert driver.evaluated == ["pod-0"]
        assert world.server.resource_version == before + 2
        assert (await world.answer("pod-0")).viable_nodes == ("n3",)

    play(scenario)


class Members(ShelfDriver):
    """Has disks for one pod only, whatever the others request."""

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return super().viable(request, nodes if self.alike(request) else ())

    def alike(self, request: Request[Any, Any]) -> Hashable:
        return request.pod.name == "pod-1"


def test_pods_that_the_driver_distinguishes_do_not_wait_for_each_other(play: Play) -> None:
    async def scenario(world: World) -> None:
        await wait_for_disks(world, 2, driver=Members())
        await world.set_disks("n3", 1)
        await asyncio.sleep(5)
        assert (await world.answer("pod-1")).viable_nodes == ("n3",)

    play(scenario)


def test_the_next_is_requeued_when_the_first_is_served_or_gone(play: Play) -> None:
    async def scenario(world: World) -> None:
        await wait_for_disks(world, 3)
        await world.set_disks("n3", 2)
        await asyncio.sleep(1)
        assert (await world.answer("pod-1")).viable_nodes == ()
        await world.select("pod-0", "n3")
        await asyncio.sleep(1)
        assert (await world.answer("pod-1")).viable_nodes == ("n3",)
        await world.end("pod-1")
        await asyncio.sleep(1)

        assert (await world.answer("pod-2")).viable_nodes == ("n3",)

    play(scenario)


def test_who_cannot_use_what_is_free_is_passed_over_after_a_while(play: Play) -> None:
    async def scenario(world: World) -> None:
        await wait_for_disks(world, 4)
        await world.set_disks("n3", 1)
        await asyncio.sleep(1)
        for number in range(1, 4):
            assert (await world.answer(f"pod-{number}")).viable_nodes == ()
            await asyncio.sleep(TURN_SECONDS)
            assert (await world.answer(f"pod-{number}")).viable_nodes == ("n3",)
        await world.settle()

    play(scenario)


def test_when_nothing_is_left_no_other_is_requeued(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = await wait_for_disks(world, 4)
        driver.evaluated.clear()
        await world.set_disks("n3", 1)
        await world.set_disks("n3", 0)
        await world.settle()

        assert set(driver.evaluated) == {"pod-0"}

    play(scenario)


def test_a_disk_that_was_given_back_and_a_failed_allocation_wake_who_waits(play: Play) -> None:
    async def scenario(world: World) -> None:
        await wait_for_disks(world, 1)
        await world.add_claim("user")
        await world.set_disks("n3", 1)
        await world.ask("holder", "user", selected="n3")
        await world.settle()
        assert (await world.answer("pod-0")).viable_nodes == ("n3",)
        await world.ask("pod-0", "disk-0", nodes=["n3"], round=2)
        await world.settle()
        assert (await world.answer("pod-0")).viable_nodes == ()
        await world.take_back("user")
        await world.end("holder")
        await world.settle()

        assert (await world.answer("pod-0")).viable_nodes == ("n3",)

    play(scenario)


def test_answers_with_viable_nodes_are_kept_up_to_date_too(play: Play) -> None:
    """They wait for another driver, and must not miss the node where both can serve them."""

    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_node("b", 0)
        await world.add_class()
        world.start(ShelfDriver())
        for pod in ("p", "q"):
            await world.add_claim(pod)
            await world.ask(pod, pod, nodes=["a", "b"])
        await world.settle()
        await world.set_disks("b", 1)
        await world.settle()

        for pod in ("p", "q"):
            assert (await world.answer(pod)).viable_nodes == ("a", "b")

    play(scenario)


def test_pods_that_want_other_things_wait_in_other_lines(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 0)
        await world.add_class()
        await world.add_claim("big", size=2)
        await world.add_claim("small")
        world.start(ShelfDriver())
        await world.ask("first", "big", nodes=["a"])
        await world.ask("second", "small", nodes=["a"])
        await world.settle()
        await world.set_disks("a", 1)
        await asyncio.sleep(1)

        assert (await world.answer("second")).viable_nodes == ("a",)
        assert (await world.answer("first")).viable_nodes == ()

    play(scenario)


def test_a_new_node_is_a_change_and_a_heartbeat_is_none(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = await wait_for_disks(world, 2)
        driver.evaluated.clear()
        await world.client.patch(NODES, "n1", {"status": {"phase": "odd"}}, subresource="status")
        await asyncio.sleep(1)
        assert driver.evaluated == []
        await world.add_node("new", 1)
        await asyncio.sleep(1)

        alternatives = (await world.answer("pod-0")).alternatives
        assert alternatives is not None
        assert alternatives.nodes == ("new",)

    play(scenario)


def test_nothing_is_written_for_waiting_pods_when_nothing_changes(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 0)
        await world.add_class()
        await world.add_claim("disk")
        client = FaultClient(world.server.client())
        world.start(ShelfDriver(), client)
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()
        await world.set_disks("b", 0)
        await world.settle(10_000)

        assert client.writes == 1

    play(scenario)


actions = st.one_of(
    st.tuples(st.just("evaluate"), st.integers(0, 5), st.sampled_from(Outlook)),
    st.tuples(st.just("leave"), st.integers(0, 5), st.none()),
    st.tuples(st.just("change"), st.just(0), st.none()),
    st.tuples(st.just("pass"), st.integers(1, 30), st.none()),
)


@given(st.lists(actions, max_size=30))
def test_after_a_change_all_are_evaluated_unless_nothing_is_left(history: list[Any]) -> None:
    """Those who wait with an answer that is older than the last change are evaluated in the end, one by one."""

    async def story() -> None:
        evaluated: dict[str, int] = {}

        def requeue(key: tuple[str, str]) -> None:
            if waiting.has(key):
                evaluated[key[1]] = waiting.changes
                waiting.evaluated(key, "line", Outlook.ELSEWHERE, waiting.changes)

        waiting = WaitingPods(requeue)
        present: set[str] = set()
        for action, number, outlook in history:
            key = ("default", f"pod-{number}")
            match action:
                case "evaluate":
                    present.add(key[1])
                    evaluated[key[1]] = waiting.changes
                    waiting.evaluated(key, "line", outlook, waiting.changes)
                case "leave":
                    present.discard(key[1])
                    waiting.leave(key)
                case "change":
                    waiting.changed()
                case "pass":
                    await asyncio.sleep(number)
        waiting.changed()
        await asyncio.sleep(20 * TURN_SECONDS)
        assert {pod for pod in present if evaluated[pod] < waiting.changes} == set()
        waiting.close()

    run(story())


def test_who_has_the_highest_priority_has_the_first_turn_after_each_change(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 0)
        await world.add_class()
        priorities = {"early": 0, "low": -1, "high": 100, "late": 0}
        driver = ShelfDriver()
        world.start(driver)
        for pod, priority in priorities.items():
            await world.add_claim(pod)
            await world.ask(pod, pod, nodes=["a"], priority=priority)
            await asyncio.sleep(1)
        for _ in range(2):
            driver.evaluated.clear()
            await world.set_disks("a", 1)
            await asyncio.sleep(4 * TURN_SECONDS)
            assert driver.evaluated == ["high", "early", "late", "low"]
            await world.set_disks("a", 0)
            await world.settle()

    play(scenario)


def test_who_has_the_name_of_one_that_waited_does_not_stand_in_its_place(play: Play, array: Array) -> None:
    """The former one went while a slow driver considered it."""

    async def scenario(world: World) -> None:
        array.stock = {"a": 0}
        await world.add_node("a")
        await world.add_class()
        world.start(ArrayDriver(array))
        for pod, priority in (("first", 1000), ("second", 10)):
            await world.add_claim(pod)
            await world.ask(pod, pod, nodes=["a"], priority=priority)
        await world.settle()
        await world.client.patch(NODES, "a", {"metadata": {"labels": {"disks": "maybe"}}})
        await asyncio.sleep(0.5)
        await world.end("first")
        await world.ask("first", "first", nodes=["a"], priority=0)
        await world.settle()
        array.stock["a"] = 1
        await world.client.patch(NODES, "a", {"metadata": {"labels": {"disks": "new"}}})
        await asyncio.sleep(5)

        assert (await world.answer("second")).viable_nodes == ("a",)
        assert (await world.answer("first")).viable_nodes == ()

    play(scenario)


def test_who_waits_behind_two_that_nothing_helps_has_a_turn_though_there_is_always_a_change() -> None:
    async def story() -> None:
        asked: list[str] = []

        def ask(key: tuple[str, str]) -> None:
            asked.append(key[1])
            waiting.evaluated(key, "disk", Outlook.ELSEWHERE, waiting.changes)

        def requeue(key: tuple[str, str]) -> None:
            asyncio.get_running_loop().call_soon(ask, key)

        waiting = WaitingPods(requeue)
        for pod in ("first", "second", "third"):
            waiting.evaluated(("team", pod), "disk", Outlook.ELSEWHERE, waiting.changes)
        for _ in range(20):
            waiting.changed()
            await asyncio.sleep(TURN_SECONDS / 2)
        waiting.close()

        assert {"first", "second", "third"} == set(asked)

    run(story())
