"""What was allocated and can't be used is released: once, without circles, and soon if nobody waits for it."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.grump import APART, add_grump
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, failing, no_trouble, slow

from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.kube.client import Call, Conflict, Invalid, NotFound
from parley.scheduler.attempts import PATIENCE

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

TEN_MINUTES = 600.0


async def begin(world: World, nodes: str, **class_: Any) -> Behaviour:
    behaviour = Behaviour(other=4)
    for node in nodes:
        await world.add_node(node)
    await add_shelf_class(world, **class_)
    world.start_parley(drivers=[ShelfDriver(behaviour)])
    return behaviour


async def places(world: World, pods: int) -> Counter[str]:
    """How many of the pods p0, p1, ... are on each node."""
    return Counter([await world.node_of(f"p{i}") for i in range(pods)])


def held(world: World) -> int:
    assert world.controller is not None
    return len(world.controller.ledger)


@pytest.mark.parametrize("class_", [{}, {"nodePart": "None"}, {"placement": "Exact"}], ids=str)
def test_a_node_that_was_left_is_not_taken_again_while_others_are_viable(
    play: Any, class_: dict[str, Any]
) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "abcde", **class_)
        for node in "abcd":
            await add_grump(world, node)
        for i in range(3):
            behaviour.allocated.clear()
            await world.add_pod(f"p{i}", "shelf", affinity=APART)
            await world.settle()
            assert await world.node_of(f"p{i}") == "e"
            assert len(behaviour.allocated) == len(set(behaviour.allocated))

    play(scenario)


@pytest.mark.parametrize("class_", [{}, {"placement": "Exact"}], ids=str)
def test_after_a_failure_another_node_is_tried_first(play: Any, class_: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "ab", **class_)
        behaviour.trouble = failing(RuntimeError("jammed"), "a")
        for i in range(4):
            behaviour.allocated.clear()
            await world.add_pod(f"p{i}", "shelf")
            await world.settle()
            assert await world.node_of(f"p{i}") == "b"
            assert behaviour.allocated in (["b"], ["a", "b"])

    play(scenario)


@pytest.mark.parametrize("how", ["deleted", "finished", "replaced"])
def test_an_allocation_under_way_is_aborted_when_its_pod_goes(play: Any, how: str) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a")
        behaviour.trouble = slow(25)
        await world.add_pod("p", *["shelf"] * 4)
        await asyncio.sleep(5)
        if how == "finished":
            await world.finish_pod("p")
        else:
            await world.delete_pod("p")
        if how == "replaced":
            await world.add_pod("p")
        behaviour.trouble = slow(0)
        await world.add_pod("next", *["shelf"] * 4)
        await asyncio.sleep(1)
        assert await world.node_of("next") == "a"
        await world.settle()
        assert held(world) == 4
        assert not [note for reason, note in await world.events_on("p") if reason == "AllocationFailed"]

    play(scenario)


def test_a_driver_that_takes_too_long_is_told_to_be_asynchronous_and_others_go_on(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "ab")
        behaviour.trouble = slow(1000)
        await world.add_class()
        await world.add_template()
        await world.add_pod("slow", "shelf")
        await asyncio.sleep(10)
        behaviour.trouble = slow(0)
        await world.add_pod("other", "shelf")
        await asyncio.sleep(1)
        assert await world.node_of("other") != ""
        behaviour.trouble = slow(1000)
        await asyncio.sleep(25)
        ((reason, note),) = await world.events_on("slow")
        node = behaviour.allocated[0]
        assert (reason, note) == (
            "AllocationFailed",
            f"driver shelf.example.com could not allocate on node {node}: "
            "no result within 30 s: a driver that takes longer has to set asynchronous = True",
        )
        assert behaviour.calls["deallocate"] == 1
        behaviour.trouble = slow(0)
        await world.settle()
        assert await world.node_of("slow") != ""

    play(scenario)


def test_a_drivers_own_timeout_is_told_in_its_own_words(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a")
        behaviour.trouble = slow(2, TimeoutError("the array did not answer"))
        await world.add_pod("p", "shelf")
        await asyncio.sleep(3.5)
        assert await world.events_on("p") == [
            (
                "AllocationFailed",
                "driver shelf.example.com could not allocate on node a: the array did not answer",
            )
        ]

    play(scenario)


@pytest.mark.parametrize("pods", [1, 5])
@pytest.mark.parametrize("class_", [{}, {"nodePart": "None"}, {"placement": "Exact"}], ids=str)
@pytest.mark.parametrize("full", ["", "j"], ids=["", "one-node-full"])
def test_pods_that_fit_nowhere_for_other_reasons_make_no_circles(
    play: Any, class_: dict[str, Any], pods: int, full: str
) -> None:
    """On a node that is only full the scheduler sees that the claim keeps the pod away, and takes it back."""

    async def scenario(world: World) -> None:
        behaviour = await begin(world, "abcdefghij", **class_)
        behaviour.places = {full: 0}
        for node in set("abcdefghij") - {full}:
            await add_grump(world, node)
        for i in range(pods):
            await world.add_pod(f"p{i}", "shelf", affinity=APART)
        before = int(world.server.resource_version)
        await asyncio.sleep(TEN_MINUTES)
        assert behaviour.calls["allocate"] <= 10 * 7 * pods
        assert behaviour.calls["allocate"] - behaviour.calls["deallocate"] <= pods
        assert behaviour.calls["viable"] <= 80 * pods
        assert int(world.server.resource_version) - before <= 300 * pods
        await world.delete_pod("grump-d")
        await asyncio.sleep(400)
        assert await places(world, pods) == {"d": min(pods, 4), **({"": 1} if pods > 4 else {})}

    play(scenario)


def test_a_driver_that_fails_everywhere_is_asked_ever_less(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "ab")
        behaviour.trouble = failing(RuntimeError("jammed"))
        await world.add_pod("p", "shelf", "shelf")
        before = int(world.server.resource_version)
        await asyncio.sleep(TEN_MINUTES)
        assert behaviour.calls["allocate"] <= 30
        assert int(world.server.resource_version) - before <= 50
        assert {reason for reason, _ in await world.events_on("p")} == {"AllocationFailed"}
        status = (await world.scheduling("p")).status
        assert (status.waiting_for, status.message) == (
            "AllocationFailed",
            "driver shelf.example.com could not allocate on node a: jammed",
        )
        assert held(world) == 0

        behaviour.trouble = no_trouble
        await asyncio.sleep(400)
        assert await world.node_of("p")
        assert not (await world.scheduling("p")).status.waiting_for

    play(scenario)


def test_an_allocation_that_the_api_server_refuses_is_given_back_and_tried_ever_less(play: Any) -> None:
    def refuse(call: Call) -> None:
        if call.resource == BUILTIN_CLAIMS and (call.body or {}).get("status", {}).get("allocation"):
            raise Invalid(422, "Invalid", "injected: no such driver")

    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=4)
        await world.add_node("a")
        await world.add_node("b")
        await add_shelf_class(world)
        world.start_parley(FaultClient(world.server.client(), before=refuse), drivers=[ShelfDriver(behaviour)])
        for name in ("p", "q"):
            await world.add_pod(name, "shelf", "shelf", "shelf")
        await asyncio.sleep(TEN_MINUTES)
        assert behaviour.calls["allocate"] <= 40
        assert held(world) == 0
        told = [note for reason, note in await world.events_on("p") if reason == "AllocationFailed"]
        assert told == ["the API server refused the allocation: injected: no such driver"]
        status = (await world.scheduling("p")).status
        assert (status.waiting_for, status.message) == ("AllocationFailed", told[0])

    play(scenario)


@pytest.mark.scheduling_paths("native")  # offers are made by the native path alone
@pytest.mark.parametrize("claims", [1, 2, 3])
def test_an_offer_that_the_scheduler_takes_back_claim_by_claim_is_made_again(play: Any, claims: int) -> None:
    async def scenario(world: World) -> None:
        await world.add_class(placement="Exact")
        await world.add_template()
        for node in "ab":
            await world.add_node(node, devices=3)
            await add_grump(world, node)
        await world.add_node("without")
        world.start_parley()
        await world.add_pod("p", *["one"] * claims, affinity=APART)
        await asyncio.sleep(300)
        assert await world.node_of("p") == ""
        await world.delete_pod("grump-b")
        await world.settle(400)
        assert await world.node_of("p") == "b"

    play(scenario)


@pytest.mark.scheduling_paths("native")  # only its scheduler clears an allocation
def test_a_pod_that_is_refused_while_a_retry_is_due_is_offered_again_nevertheless(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_class(placement="Exact")
        await world.add_template()
        await world.add_node("a", devices=2)
        await world.add_node("without")
        await add_grump(world, "a")
        tasks: list[asyncio.Task[Any]] = []

        def somebody_else_is_faster(call: Call) -> None:
            status = (call.body or {}).get("status", {})
            if not tasks and call.resource == BUILTIN_CLAIMS and status.get("allocation", "kept") is None:
                clear = world.client.patch(BUILTIN_CLAIMS, call.name, call.body, "default", subresource="status")
                tasks.append(asyncio.create_task(clear))
                raise Conflict(409, "Conflict", "the claim was cleared meanwhile")

        world.start_parley(FaultClient(world.server.client(), before=somebody_else_is_faster))
        await world.add_pod("p", "one", "one", affinity=APART)
        await asyncio.sleep(2)
        assert tasks
        await world.client.patch(PODS, "grump-a", {"metadata": {"labels": {"app": "calm"}}}, "default")
        await world.settle(400)
        assert await world.node_of("p") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("class_", [{}, {"nodePart": "None"}], ids=str)
def test_others_get_what_a_pod_has_that_its_scheduler_does_not_place(play: Any, class_: dict[str, Any]) -> None:
    """The scheduler takes it back only where another node would do but for the claims: here there is none."""

    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a", **class_)
        behaviour.other = 1
        await add_grump(world, "a")
        await world.add_pod("p0", "shelf", affinity=APART)
        await world.settle()
        await world.add_pod("p1", "shelf")
        await world.settle()
        assert (held(world), await world.node_of("p1")) == (1, "")
        await asyncio.sleep(PATIENCE.first)
        await world.settle()
        assert await places(world, 2) == Counter({"": 1, "a": 1})
        assert held(world) == 1
        await world.delete_pod("grump-a")
        await world.delete_pod("p1")
        await world.settle()
        assert await world.node_of("p0") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_pod_that_is_not_placed_anywhere_is_tried_again_less_and_less_often(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "a")
        await add_grump(world, "a")
        await world.add_pod("p0", "shelf", affinity=APART)
        await asyncio.sleep(24 * 3600.0)
        assert len(behaviour.allocated) <= 24

    play(scenario)


@pytest.mark.scheduling_paths("native")  # the second scheduler has claims allocated when it binds
def test_a_pod_with_all_of_its_claims_that_is_not_bound_says_so(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a")
        await world.add_pod("p", "shelf", schedulerName="nobody")
        await asyncio.sleep(59)
        with pytest.raises(NotFound):
            await world.scheduling("p")
        await asyncio.sleep(2)
        status = (await world.scheduling("p")).status
        assert (status.waiting_for, status.message) == (
            "Binding",
            "everything is allocated, and scheduler nobody has not bound the pod yet",
        )
        assert await world.events_on("p") == []

        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "a"}}
        await world.client.create_subresource(PODS, "p", "binding", target, "default")
        await world.settle()
        scheduling = await world.scheduling("p")
        assert (scheduling.spec.selected_node, scheduling.status.waiting_for) == ("a", "")

    play(scenario)


@pytest.mark.scheduling_paths("native")  # a scheduler with an extender has the message as the error of its bind
def test_pods_that_a_hanging_driver_takes_no_calls_for_say_so(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, "ab")
        behaviour.trouble = slow(1000)
        behaviour.other = 20
        for number in range(20):
            await world.add_pod(f"p{number}", "shelf")
        await asyncio.sleep(25)
        said = [note for number in range(20) for _, note in await world.events_on(f"p{number}")]
        message = "driver shelf.example.com is slow, and takes no more calls until some have ended"
        assert said == [message] * 8
        status = (await world.scheduling("p19")).status
        assert (status.waiting_for, status.message) == ("AllocationFailed", message)
        behaviour.trouble = slow(0)
        await world.settle(70)
        assert all([await world.node_of(f"p{number}") for number in range(20)])
        assert (await world.scheduling("p19")).status.waiting_for == ""

    play(scenario)
