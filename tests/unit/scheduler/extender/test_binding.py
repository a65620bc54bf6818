"""A bind: everything is allocated and recorded before the pod is bound, once, and in time or not at all."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.extender.bindings import SlowRecords, begin, recorded_for, writes_of
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.pod import reference
from parley.kube.client import Call, Invalid, NotFound
from parley.kube.informer import Informer
from parley.scheduler.extender.binding import BIND_SECONDS, MOST_BINDS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


@pytest.mark.parametrize("claims", [1, 4])
def test_everything_is_recorded_before_the_pod_is_bound(play: Any, claims: int) -> None:
    async def scenario(world: World) -> None:
        at_binding: list[Any] = []

        def seen(old: Pod | None, new: Pod | None) -> None:
            if new is not None and new.spec.node_name and (old is None or not old.spec.node_name):
                at_binding.append(asyncio.ensure_future(recorded_for(world, new)))

        watching = asyncio.create_task(Informer(world.client, PODS, on_change=seen).run())
        await begin(world, other=4)
        await world.add_pod("p", *["shelf"] * claims)
        await world.settle()
        assert await world.node_of("p")
        assert [await found for found in at_binding] == [[True] * claims]
        watching.cancel()

    play(scenario)


@pytest.mark.parametrize(
    ("settings", "writes"),
    [
        ({}, ["create podschedulings", "create pods/binding", "patch resourceclaims/status"]),
        ({"pod_schedulings": "WhenWaiting"}, ["create pods/binding", "patch resourceclaims/status"]),
    ],
    ids=["", "when-waiting"],
)
def test_a_pod_that_is_placed_at_once_costs_three_writes_or_two(
    play: Any, settings: dict[str, Any], writes: list[str]
) -> None:
    async def scenario(world: World) -> None:
        client = FaultClient(world.server.client())
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(client, **settings)
        await world.settle()
        client.calls.clear()
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"
        found = [write.replace("patch podschedulings", "create podschedulings") for write in writes_of(client)]
        about_classes = [write for write in found if write == "patch resourceclasses/status"]
        assert len(about_classes) == 1, "what is free, once in ten seconds however many pods there are"
        assert sorted(found) == sorted([*writes, *about_classes])

    play(scenario)


def test_a_pod_without_claims_costs_its_binding_alone(play: Any) -> None:
    async def scenario(world: World) -> None:
        client = FaultClient(world.server.client())
        await begin(world, client=client)
        await world.settle()
        client.calls.clear()
        await world.add_pod("plain")
        await world.settle()
        assert await world.node_of("plain")
        assert writes_of(client) == ["create pods/binding"]

    play(scenario)


def test_what_takes_longer_than_a_bind_may_is_given_back_and_nothing_is_posted_late(play: Any) -> None:
    """The scheduler tries again, perhaps elsewhere: it must never find the pod bound by an attempt it gave up."""

    async def scenario(world: World) -> None:
        client = FaultClient(SlowRecords(world.server.client(), 70))
        shelf = await begin(world, client=client)
        await world.add_pod("p", "shelf")
        await asyncio.sleep(59)
        assert shelf.calls["allocate"] == 1
        assert world.calls.count["bind"] == 1
        assert await world.node_of("p") == ""
        assert "create pods/binding" not in writes_of(client)
        await world.settle()
        assert world.calls.failed_binds == [
            (
                "p",
                "not bound to node n0 within 45 s: its claims were allocated too late: the scheduler tries again. "
                "If it stays so, see the controller's log, and whether the API server is slow",
            )
        ]
        assert await world.node_of("p")
        assert len(world.ledger) == 1
        assert world.calls.count["filter"] < 10

    play(scenario)


def test_a_bind_that_a_slow_driver_kept_waiting_says_so(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, nodes=1, other=40, trouble=slow(1000))
        for i in range(30):
            await world.add_pod(f"p{i}", "shelf")
        await asyncio.sleep(50)
        assert (
            "not bound to node n0 within 45 s: driver shelf.example.com is slow, and takes no more calls until "
            "some have ended: the scheduler tries again. If it stays so, see the controller's log, and whether "
            "the API server is slow"
        ) in {why for _, why in world.calls.failed_binds}

    play(scenario)


def test_binds_that_wait_leave_connections_for_the_scheduler_s_other_calls(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.settle()
        asked = {"PodName": "unseen", "PodNamespace": "default", "Node": "n0"}
        binds = [asyncio.create_task(world.ask("bind", {**asked, "PodUID": str(i)})) for i in range(MOST_BINDS)]
        await asyncio.sleep(1)
        assert (await world.ask("bind", {**asked, "PodUID": "one more"}))["Error"] == (
            "1536 pods are being bound, which is the most at a time: the scheduler tries again"
        )
        assert not any(bind.done() for bind in binds)
        await asyncio.sleep(BIND_SECONDS)
        assert all(bind.done() for bind in binds)
        await world.add_pod("p", "shelf")
        await world.settle()
        assert await world.node_of("p")

    play(scenario)


def test_a_pod_is_bound_by_one_attempt_at_a_time(play: Any) -> None:
    """The scheduler gives a call up after a while and asks again, for another node, while the first goes on."""

    async def scenario(world: World) -> None:
        under_way, most = 0, 0

        async def count(_: str) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                await asyncio.sleep(20)
            finally:
                under_way -= 1

        await begin(world, nodes=3, trouble=count)
        await world.add_pod("p", "shelf")
        await asyncio.sleep(5)
        assert world.controller is not None
        pod = await world.pod("p")
        asked = {"PodName": "p", "PodNamespace": "default", "PodUID": pod.metadata.uid}
        for node in ("n0", "n1", "n2"):
            answer = await world.ask("bind", {**asked, "Node": node})
            assert answer["Error"]
        await world.settle()
        assert most == 1
        assert await world.node_of("p")
        assert world.ledger.of_pod_name("default", "p")[0].node == await world.node_of("p")

    play(scenario)


def test_no_pod_is_bound_whose_reservation_of_a_shared_claim_was_refused(play: Any) -> None:
    """Others hold the claim, so it stays allocated when the pod releases what it could not record."""

    async def scenario(world: World) -> None:
        refusing = False

        def refuse(call: Call) -> None:
            if refusing and call.verb == "patch" and call.resource == BUILTIN_CLAIMS:
                raise Invalid(422, "Invalid", "the claim is being deleted")

        await world.add_node("n0")
        await add_shelf_class(world, shareable=True)
        world.start_parley(
            FaultClient(world.server.client(), before=refuse), drivers=[ShelfDriver(Behaviour(other=1))]
        )
        await world.add_claim("common", "shelf")
        await world.add_pod("p", claims=["common"])
        await world.settle()
        assert await world.node_of("p") == "n0"
        refusing = True
        await world.add_pod("q", claims=["common"])
        await asyncio.sleep(60)
        assert {why for _, why in world.calls.failed_binds} == {
            "the API server refused the allocation, see the pod's events: the scheduler tries again"
        }
        assert await world.node_of("q") == ""
        refusing = False
        await asyncio.sleep(300)
        assert await world.node_of("q") == "n0"

    play(scenario)


def test_no_pod_is_bound_while_what_it_held_is_given_back(play: Any) -> None:
    """Giving back may take a while, and until then the API shows everything allocated and reserved."""

    async def scenario(world: World) -> None:
        await world.add_node("n0")
        await add_shelf_class(world, shareable=True)
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=1))])
        await world.add_claim("common", "shelf")
        await world.add_pod("p", claims=["common"])
        await world.settle()
        holding = world.ledger.of_claim("default", "common")
        assert holding is not None
        await world.add_pod("q", claims=["common"], schedulerName="absent")
        await world.settle()
        user = reference(await world.pod("q"))
        assert user.uid in holding.pods
        assert world.controller is not None
        assert world.controller.extender is not None

        async with holding.lock:
            releasing = asyncio.create_task(world.controller.extender._release(user))
            await asyncio.sleep(1)
            asked = {"PodName": "q", "PodNamespace": "default", "PodUID": user.uid, "Node": "n0"}
            refused = await world.ask("bind", asked)
        await releasing

        assert refused["Error"] == (
            "what the pod held is being released: the scheduler tries again when that is done"
        )
        assert await world.node_of("q") == ""

    play(scenario)


def test_a_pod_that_goes_while_it_is_being_bound_leaves_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        shelf = await begin(world, trouble=slow(10))
        for after in (0.0, 0.01, 5.0, 9.99, 10.0, 10.01):
            await world.add_pod("p", "shelf")
            await asyncio.sleep(after)
            await world.force_delete("p")
            await world.settle()
            assert list(await world.mirrors()) == []
            assert len(world.ledger) == 0
        assert shelf.calls["allocate"] >= 4

    play(scenario)


def test_a_pod_of_the_same_name_gets_nothing_of_the_one_before(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, nodes=1, trouble=slow(10))
        await world.add_pod("p", "shelf")
        await asyncio.sleep(5)
        await world.force_delete("p")
        await world.add_pod("p", "shelf")
        await world.settle()
        pod = await world.pod("p")
        assert pod.status.phase == "Running"
        (mirror,) = await world.mirrors()
        assert [user.uid for user in mirror.status.reserved_for] == [pod.metadata.uid]

    play(scenario)


def test_a_bind_to_a_node_that_is_not_there_binds_nothing(play: Any) -> None:
    """The API server would accept it."""

    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("p", "shelf", schedulerName="parley-away")
        await world.add_pod("plain", schedulerName="parley-away")
        await world.settle()
        for name in ("p", "plain"):
            meta = (await world.pod(name)).metadata
            asked = {"PodName": name, "PodNamespace": "default", "PodUID": meta.uid, "Node": "gone"}
            assert (await world.ask("bind", asked))["Error"]
            assert await world.node_of(name) == ""

    play(scenario)


@pytest.mark.parametrize("claims", [(), ("shelf",)], ids=["without claims", "with a claim"])
def test_a_caller_binds_no_pod_of_another_scheduler(play: Any, claims: tuple[str, ...]) -> None:
    """It would place any pod of the cluster on any node, with the controller's rights."""

    async def scenario(world: World) -> None:
        await begin(world, nodes=2)
        await world.add_pod("p", *claims, schedulerName="somebody-elses")
        await world.settle()
        held = [(holding.node, list(holding.pods)) for holding in world.ledger]
        assert len(held) == len(claims)
        meta = (await world.pod("p")).metadata
        for node in ("n0", "n1"):
            asked = {"PodName": "p", "PodNamespace": "default", "PodUID": meta.uid, "Node": node}
            assert (await world.ask("bind", asked))["Error"] == (
                "the pod is of scheduler somebody-elses, for whose pods Parley does not answer: to have it bind "
                "them, start the controller with --scheduler-name somebody-elses"
            )
        await world.settle()
        assert await world.node_of("p") == ""
        assert [(holding.node, list(holding.pods)) for holding in world.ledger] == held

    play(scenario)


def test_a_mirror_that_vanishes_while_its_pod_is_being_bound_keeps_the_pod_from_it(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, trouble=slow(5))
        await world.add_pod("p", "shelf")
        await asyncio.sleep(2)
        for mirror in await world.mirrors():
            try:
                await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, "default")
            except NotFound:
                pass
        await world.settle()
        pod = await world.pod("p")
        assert pod.status.phase == "Running"
        assert await recorded_for(world, pod) == [True]

    play(scenario)
