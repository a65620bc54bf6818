"""Named claims that several pods want: shared up to what Kubernetes allows, or one pod after the other."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, restart

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, NODES, PODS
from parley.control.objects.pod import reference
from parley.kube.client import Call, Client
from parley.kube.informer import Informer

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

MOST = 256


async def begin(world: World, nodes: int = 3, client: Client | None = None, **class_: Any) -> Behaviour:
    behaviour = Behaviour(other=1000)
    for i in range(nodes):
        await world.add_node(f"n{i}")
    await add_shelf_class(world, **class_)
    await world.add_claim("common", "shelf")
    world.start_parley(client, drivers=[ShelfDriver(behaviour)])
    return behaviour


async def running(world: World, *names: str) -> list[str]:
    return [name for name in names if (await world.pod(name)).status.phase == "Running"]


def test_256_pods_share_a_claim_and_the_next_gets_in_when_one_leaves(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, shareable=True)
        for node in ("n0", "n1", "n2"):
            allocatable = {"cpu": "8", "memory": "16Gi", "pods": "300"}
            await world.client.patch(NODES, node, {"status": {"allocatable": allocatable}}, subresource="status")
        names = [f"p{i:03}" for i in range(MOST)]
        for name in names:
            await world.add_pod(name, claims=["common"])
        await world.settle()
        assert len(await running(world, *names)) == MOST
        assert len({await world.node_of(name) for name in names}) == 1
        assert behaviour.calls["allocate"] == 1
        for name in ("late", "later"):
            await world.add_pod(name, claims=["common"])
            await world.settle()
        message = (
            "256 pods use claim default/common, which is the most that Kubernetes allows: "
            "wait until one of them ends, or create another claim for some of them"
        )
        status = (await world.scheduling("late")).status
        assert (status.waiting_for, status.message) == ("ClaimFull", message)
        assert await world.events_on("late") == [("ClaimFull", message)]
        await world.delete_pod("p007")
        await world.settle()
        first = await running(world, "late", "later")
        assert len(first) == 1
        await restart(world, [ShelfDriver(behaviour)])
        await world.settle()
        assert await running(world, "late", "later") == first
        await world.finish_pod("p008")
        await world.settle()
        assert await running(world, "late", "later") == ["late", "later"]
        mirror = await world.mirror("common")
        assert mirror is not None
        assert len(mirror.status.reserved_for) == MOST

    play(scenario)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "after-restarts"])
def test_an_exclusive_claim_is_handed_on_in_the_order_of_arrival(play: Any, restarts: bool) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        names = ["m", "z", "b", "y", "a", "x"]
        for name in names:
            await world.add_pod(name, claims=["common"])
            await asyncio.sleep(2)
        order: list[str] = []
        await world.settle()
        while len(order) < len(names):
            (now,) = [name for name in await running(world, *names) if name not in order]
            order.append(now)
            if restarts:
                await restart(world, [ShelfDriver(behaviour)], after=len(order))
                await world.settle()
            await world.finish_pod(now)
            await world.settle()
        assert order == names

    play(scenario)


def test_a_claim_that_comes_free_while_parley_is_away_still_serves_one_pod_at_a_time(play: Any) -> None:
    """The scheduler lets in whom it likes then."""

    async def scenario(world: World) -> None:
        behaviour = await begin(world)
        names = ["m", "z", "b", "y"]
        for name in names:
            await world.add_pod(name, claims=["common"])
        await world.settle()
        served: list[str] = []
        for _ in names:
            (now,) = [n for n in names if (await world.pod(n)).status.phase == "Running"]
            assert now not in served
            served.append(now)
            await world.finish_pod(now)
            await restart(world, [ShelfDriver(behaviour)], after=5)
            await world.settle()
        assert sorted(served) == sorted(names)
        assert (await world.claim("common")).status.allocation is None

    play(scenario)


def test_the_turn_passes_to_the_next_if_the_first_in_line_can_not_use_it(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_class("gone", driverName=ShelfDriver.name)
        for name, more in (("user", {}), ("picky", {"nodeSelector": {"colour": "red"}}), ("next", {})):
            await world.add_pod(name, claims=["common"], **more)
            await world.settle()
        await world.delete_pod("user")
        await world.settle()
        assert await running(world, "picky", "next") == ["next"]
        await world.delete_pod("next")
        await world.settle()
        await world.add_node("red", labels={"colour": "red"})
        await world.settle()
        assert await world.node_of("picky") == "red"

    play(scenario)


@pytest.mark.scheduling_paths("native")  # a scheduler with an extender has an order of its own
def test_handing_on_costs_as_much_however_many_wait(play: Any) -> None:
    def writes(waiting: int) -> int:
        counts: list[int] = []

        async def scenario(world: World) -> None:
            client = FaultClient(world.server.client())
            await begin(world, client=client)
            await world.add_pod("user", claims=["common"])
            for i in range(waiting):
                await world.add_pod(f"p{i:02}", claims=["common"])
            await world.settle()
            before = client.writes
            await world.delete_pod("user")
            await world.settle()
            assert await world.node_of("p00")
            counts.append(client.writes - before)

        play(scenario)
        return counts[0]

    assert writes(2) == writes(40) <= 8


class SlowToRead(Client):
    """Its answers about one pod come a second late."""

    def __init__(self, client: Client, pod: str) -> None:
        super().__init__(client)
        self._pod = pod

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.verb == "get" and call.resource == PODS and call.name == self._pod:
            await asyncio.sleep(1)
        return answer


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("slow", [False, True], ids=["", "put right while the pod is read"])
def test_a_pod_that_is_let_in_again_after_its_claim_was_cleared_stays_in(play: Any, slow: bool) -> None:
    """Its scheduler may have bound it by then: what another pod runs with is put right for both."""

    async def scenario(world: World) -> None:
        client = world.server.client()
        await begin(world, client=SlowToRead(client, "second") if slow else client, shareable=True)
        await world.add_pod("first", claims=["common"])
        await world.settle()
        await world.add_pod("second", claims=["common"], schedulerName="slow")
        await world.settle()
        users: list[list[str]] = []

        def saw(_: BuiltinClaim | None, now: BuiltinClaim | None) -> None:
            assert now is not None
            users.append([user.name for user in now.status.reserved_for])

        watch = asyncio.create_task(Informer(world.client, BUILTIN_CLAIMS, on_change=saw).run())
        await world.settle()
        cleared = {"status": {"allocation": None, "reservedFor": None}}
        await world.client.patch(BUILTIN_CLAIMS, "common", cleared, "default", subresource="status")
        await world.settle()

        both = ["first", "second"]
        assert users == [both, [], both]
        watch.cancel()

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_what_such_a_pod_has_beside_the_claim_stays_its_own(play: Any) -> None:
    async def scenario(world: World) -> None:
        client = SlowToRead(world.server.client(), "second")
        await begin(world, client=client, shareable=True)
        await world.add_pod("first", claims=["common"])
        await world.settle()
        await world.add_pod("second", "shelf", claims=["common"], schedulerName="slow")
        await world.settle()
        (own,) = [one for one in await world.mirrors() if one.metadata.name.startswith("second-")]
        cleared = {"status": {"allocation": None, "reservedFor": None}}
        await world.client.patch(BUILTIN_CLAIMS, "common", cleared, "default", subresource="status")
        await world.settle()
        (after,) = [one for one in await world.mirrors() if one.metadata.uid == own.metadata.uid]
        assert after.metadata.resource_version == own.metadata.resource_version
        assert after.status.allocation is not None

    play(scenario)


def test_a_pod_that_waits_with_a_claim_hears_that_another_pod_has_got_the_claim(play: Any) -> None:
    """It needs less then, and stood in line with pods that need more."""

    async def scenario(world: World) -> None:
        await world.add_node("a", 3)
        await world.add_class(shareable=True)
        await world.add_template("one")
        await world.add_claim("common")
        world.start_parley()
        for name in ("first", "second", "third"):
            await world.add_pod(name, "one")
            await world.settle()
            assert await world.node_of(name) == "a"
        await world.add_pod("also-two", "one", "one")
        await world.settle()
        await world.add_pod("waits", "one", claims=["common"])
        await world.settle()
        await world.add_pod("has-common", claims=["common"], priority=5)
        await world.settle()
        await world.finish_pod("first")
        await world.settle()
        assert await world.node_of("has-common") == "a"
        await world.finish_pod("second")
        await world.settle()
        assert await world.node_of("waits") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_pod_that_its_user_put_on_a_node_without_the_claim_gets_it_there_after_the_others(play: Any) -> None:
    """Kubernetes let it in, so it counts as one that uses the claim."""

    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_node("b", 1)
        await world.add_class(shareable=True)
        await world.add_claim("common")
        world.start_parley()
        await world.add_pod("first", claims=["common"], nodeName="b")
        await world.settle()
        assert await running(world, "first") == ["first"]
        await world.add_pod("astray", claims=["common"], nodeName="a")
        await world.settle()
        holding = world.ledger.of_claim("default", "common")
        assert holding is not None
        world.ledger.join(holding, reference(await world.pod("astray")))  # as when another user leaves it
        await world.client.patch(PODS, "astray", {"spec": {"tolerations": [{"operator": "Exists"}]}}, "default")
        await world.settle()
        (event,) = [note for reason, note in await world.events_on("astray") if reason == "NothingViable"]
        assert event == (
            "node a does not have claim default/common: it is allocated on node b, and other pods use it there. "
            "Delete this pod and let a scheduler place it, or wait until they have ended"
        )
        await world.finish_pod("first")
        await world.settle()
        assert await running(world, "astray") == ["astray"]

    play(scenario)
