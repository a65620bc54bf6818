"""A kube-scheduler that does not hear of its binding lets go of the pod's claims, but the pod is bound."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.support.faults import FaultClient, Hook

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.mirror import allocated, driver_of
from parley.drivers.device import DeviceDriver
from parley.kube.client import Call, Client, Expired, OutcomeUnknown, RawEvent, ServerError
from parley.kube.informer import Informer
from parley.sdk import Device
from parley.simulate.kube_scheduler import KubeScheduler

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

T = TypeVar("T")

DEAF = "deaf"
"""The scheduler that does not hear of its first binding."""
NONE: Mapping[int, float] = {}
PAUSE = 0.5
"""Seconds from one claim that it lets go of to the next."""


class DeafClient(Client):
    """That scheduler's client: so many seconds after the binding it says that it failed. Then it is slow."""

    def __init__(self, client: Client, seconds: float) -> None:
        super().__init__(client)
        self._seconds = seconds
        self.bound = False

    async def request(self, call: Call) -> bytes:
        if self.bound and call.writes and call.resource == BUILTIN_CLAIMS:
            await asyncio.sleep(PAUSE)
        answer = await super().request(call)
        if call.subresource == "binding" and not self.bound:
            self.bound = True
            await asyncio.sleep(self._seconds)
            raise OutcomeUnknown("connection lost")
        return answer


class LateClient(Client):
    """A client that hears of pods so many seconds late. An answer about a pod, by its number, takes as long as
    `slow` says."""

    def __init__(self, client: Client, seconds: float, slow: Mapping[int, float]) -> None:
        super().__init__(client)
        self._seconds = seconds
        self._slow = slow
        self._answers = 0
        self._relisted = asyncio.Event()
        self._relisted.set()

    def pause(self) -> None:
        """Hear nothing of claims until `relist`."""
        self._relisted.clear()

    def relist(self) -> None:
        """What came meanwhile is lost: claims are listed."""
        self._relisted.set()

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.verb == "get" and call.resource == PODS:
            self._answers += 1
            await asyncio.sleep(self._slow.get(self._answers, 0.0))
        return answer

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            if call.resource == PODS:
                await asyncio.sleep(self._seconds)
            elif call.resource == BUILTIN_CLAIMS and not self._relisted.is_set():
                await self._relisted.wait()
                raise Expired(410, "Expired", "too old resource version")
            yield event


class Bound:
    """What the claims showed from the binding on: devices by claim, and whether any was reserved for nobody."""

    def __init__(self, client: DeafClient) -> None:
        self._client = client
        self.devices: defaultdict[str, set[tuple[Device, ...]]] = defaultdict(set)
        self.let_go: set[str] = set()

    def saw(self, _: BuiltinClaim | None, now: BuiltinClaim | None) -> None:
        if self._client.bound and now is not None:
            allocation = now.status.allocation
            found = allocated(now, driver_of(allocation)) if allocation is not None else None
            self.devices[now.metadata.name].add(found.devices if found is not None else ())
            if not now.status.reserved_for:
                self.let_go.add(now.metadata.name)


@pytest.mark.parametrize("late", [0.0, 4.0], ids=["", "binding-seen-late"])
@pytest.mark.parametrize("heard", [0.0, 2.0], ids=["before-it-runs", "while-it-runs"])
@pytest.mark.parametrize(
    ("templates", "claims"),
    [(["one"], []), (["one", "one"], []), (["offered"], []), ([], ["disk"]), (["one"], ["disk"])],
    ids=["one", "two", "offered", "named", "one-and-named"],
)
def test_what_a_bound_pod_uses_stays_its_own_though_its_scheduler_lets_go_of_it(
    play: Any, templates: list[str], claims: list[str], heard: float, late: float
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, late, devices=len(templates) + len(claims))
        client = DeafClient(world.server.client(), heard)
        bound = Bound(client)
        watch = Informer(world.client, BUILTIN_CLAIMS, on_change=bound.saw)
        async with running(KubeScheduler(client, world.clock, DEAF), watch):
            await world.add_pod("first", *templates, claims=claims, schedulerName=DEAF)
            await world.add_pod("next", *templates, claims=claims)
            await world.settle()

            mine = {m.metadata.name: m for m in await world.mirrors() if user(m) == "first"}
            assert len(mine) == len(templates) + len(claims)
            assert set(mine) <= bound.let_go
            for name in mine:
                assert len(bound.devices[name]) == 1
                assert bound.devices[name] != {()}
            assert (await world.pod("first")).status.phase == "Running"
            assert await world.node_of("next") == ""

            await world.delete_pod("first")
            await world.settle()
            assert (await world.pod("next")).status.phase == "Running"

    play(scenario)


@pytest.mark.parametrize("slow", [2, 3])
def test_what_a_pod_got_bound_with_at_the_second_attempt_is_not_taken_back(play: Any, slow: int) -> None:
    """Whether it was bound was asked before that, and the answer came after it."""

    async def scenario(world: World) -> None:
        await begin(world, 0.0, devices=1, slow={slow: 2.0})
        first = failing_once()
        async with running(KubeScheduler(FaultClient(world.server.client(), before=first), world.clock, DEAF)):
            await world.add_pod("p", "offered", schedulerName=DEAF)
            await asyncio.sleep(1.5)
            await world.add_pod("next", "one")
            await world.settle()

        (mirror,) = [m for m in await world.mirrors() if m.status.allocation is not None]
        assert [name for name in ("p", "next") if await world.node_of(name)] == [user(mirror)]

    play(scenario)


def failing_once() -> Hook:
    """Of the bindings the first one fails."""
    bindings: list[str] = []

    def fail(call: Call) -> None:
        if call.subresource == "binding":
            bindings.append(call.name)
            if len(bindings) == 1:
                raise ServerError(500, "InternalError", "etcdserver: request timed out")

    return fail


def test_a_pod_whose_binding_failed_is_not_bound_to_another_node_that_was_offered(play: Any) -> None:
    """All of them are as good to the scheduler, whatever is allocated where."""

    async def scenario(world: World) -> None:
        await begin(world, 0.0, devices=1)
        await world.publish("b", ["gpu-0"])
        nodes: list[str] = []
        failed = asyncio.Event()

        def refuse(call: Call) -> None:
            if call.subresource == "binding":
                nodes.append(call.body["target"]["name"])
                if not failed.is_set():
                    failed.set()
                    raise ServerError(500, "InternalError", "etcdserver: request timed out")

        async with running(KubeScheduler(FaultClient(world.server.client(), before=refuse), world.clock, DEAF)):
            await world.add_pod("p", "offered", schedulerName=DEAF)
            await failed.wait()
            await world.add_pod("other", "one")
            for name in ("neighbour", "lodger"):
                await world.add_pod(name, nodeName=nodes[0])
            await world.settle()

        found = {user(mirror): allocated(mirror, DeviceDriver.name) for mirror in await world.mirrors()}
        for name in ("p", "other"):
            device = Device(await world.node_of(name), "gpu-0")
            assert (it := found.get(name)) is not None
            assert it.devices == (device,)

    play(scenario)


@pytest.mark.parametrize("taken", [["reservedFor"], ["reservedFor", "allocation"]], ids=["dropped", "cleared"])
def test_a_pod_that_the_scheduler_let_in_while_parley_was_away_keeps_a_claim_that_its_last_user_leaves(
    play: Any, taken: list[str]
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, 0.0, devices=1)
        await world.add_pod("first", claims=["common"])
        await world.settle()
        await world.crash()
        await world.add_pod("second", claims=["common"])
        await world.add_pod("next", "one")
        await world.settle()
        body = {"status": dict.fromkeys(taken)}
        await world.client.patch(BUILTIN_CLAIMS, "common", body, "default", subresource="status")
        await world.finish_pod("first")
        world.start_parley()
        await world.settle()

        common = await world.mirror("common")
        assert common is not None
        assert user(common) == "second"
        assert await world.node_of("next") == ""

        await world.finish_pod("second")
        await world.settle()
        assert (await world.pod("next")).status.phase == "Running"

    play(scenario)


@pytest.mark.parametrize("listed", [False, True], ids=["watched", "listed"])
def test_a_shared_claim_is_not_given_back_under_a_pod_that_is_not_seen_bound_yet(play: Any, listed: bool) -> None:
    """Its last known user ends, another pod is bound, and the scheduler takes that one's reservation back."""

    async def scenario(world: World) -> None:
        parley = await begin(world, 4.0, devices=1)
        await world.add_pod("first", claims=["common"])
        await world.add_pod("second", claims=["common"], schedulerName=DEAF, schedulingGates=[{"name": "wait"}])
        await world.settle()
        await world.stop_claim_controller()
        if listed:
            parley.pause()
        client = DeafClient(world.server.client(), 0.2)
        bound = Bound(client)
        watch = Informer(world.client, BUILTIN_CLAIMS, on_change=bound.saw)
        async with running(KubeScheduler(client, world.clock, DEAF), watch):
            await world.finish_pod("first")
            await asyncio.sleep(1)
            await world.client.patch(PODS, "second", {"spec": {"schedulingGates": None}}, "default")
            await world.add_pod("next", claims=["disk"])
            await asyncio.sleep(1.8)
            assert client.bound
            parley.relist()
            common = await world.mirror("common")
            assert common is not None
            assert user(common) == "first"
            await world.settle()
            assert (await world.pod("second")).status.phase == "Running"
            assert await world.node_of("next") == ""
            assert len(bound.devices["common"]) == 1

            await world.finish_pod("second")
            await world.settle()
        assert (await world.pod("next")).status.phase == "Running"

    play(scenario)


async def begin(world: World, late: float, devices: int, slow: Mapping[int, float] = NONE) -> LateClient:
    await world.add_node("a", devices=devices)
    await world.add_node("b")
    await world.add_class()
    await world.add_class("exact", placement="Exact")
    await world.add_template()
    await world.add_template("offered", "exact")
    await world.add_class("shareable", shareable=True)
    await world.add_claim("disk")
    await world.add_claim("common", "shareable")
    parley = LateClient(world.server.client(), late, slow)
    world.start_parley(parley)
    await world.settle()
    return parley


def user(mirror: BuiltinClaim) -> str:
    return " ".join(user.name for user in mirror.status.reserved_for)


@asynccontextmanager
async def running(*parts: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
