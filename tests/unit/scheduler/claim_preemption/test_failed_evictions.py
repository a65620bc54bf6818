"""Evictions that are forbidden, refused by admission, fail, or have no answer, and pods deleted meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.claim_preemption.preempting import RIGHT_LACKING, begin, hold

from parley.api.resources import NODES, PODS
from parley.kube.client import (
    ApiError,
    BadRequest,
    Call,
    Client,
    Forbidden,
    Invalid,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
)

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Callable[[World], Any]], None]


class LateAnswers(Client):
    """Evictions are done at once, and answered late."""

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.subresource == "eviction":
            await asyncio.sleep(60)
        return answer


def test_nothing_is_remembered_of_a_victim_that_is_gone_before_its_eviction_is_answered(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=LateAnswers(world.server.client()), a=1)
        await hold(world, low=1)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(100)
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"
        assert world.controller is not None
        assert world.controller._base.state.nominations._evicted == set()

    play(scenario)


class OneFails(Client):
    """The second eviction fails once, after all of the plan were tested."""

    left = 2

    async def request(self, call: Call) -> bytes:
        if call.subresource == "eviction" and "dryRun" not in call.body["deleteOptions"]:
            self.left -= 1
            if not self.left:
                raise ServerError(500, "InternalError", "etcdserver: request timed out")
        return await super().request(call)


def test_an_eviction_that_fails_after_another_one_is_tried_again_at_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=OneFails(world.server.client()), a=2)
        await hold(world, low=1, lower=0)
        for name in ("urgent", "as-urgent"):
            await world.add_pod(name, "two", priority=10)
        await world.settle(10)
        assert evicted == ["low", "lower"]
        assert [await world.node_of(name) for name in ("urgent", "as-urgent")] == ["a", ""]

    play(scenario)


class Unanswered(Client):
    """No eviction is answered."""

    async def request(self, call: Call) -> bytes:
        if call.subresource == "eviction":
            raise OutcomeUnknown("POST eviction: no answer")
        return await super().request(call)


@pytest.mark.scheduling_paths("native")  # the second scheduler has an order of its own
def test_a_pod_whose_evictions_fail_is_served_before_others_when_something_comes_free(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=Unanswered(world.server.client()), a=1)
        await hold(world, low=0)
        await world.add_pod("urgent", "one", priority=10)
        await world.add_pod("waits", "one", priority=5, preemptionPolicy="Never")
        await asyncio.sleep(100)  # the next attempt to evict is many seconds away
        await world.add_node("b", devices=1)
        await world.settle(5)
        assert evicted == []
        assert [await world.node_of(name) for name in ("urgent", "waits")] == ["b", ""]

    play(scenario)


def test_nobody_waits_for_a_pod_whose_evictions_fail(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, client=Unanswered(world.server.client()), a=1)
        await hold(world, low=0)
        for name in ("urgent", "as-urgent"):
            await world.add_pod(name, "one", priority=10)
        await asyncio.sleep(100)
        for node in "bc":
            await world.add_node(node, devices=1)
            await world.settle(5)
        assert {await world.node_of(name) for name in ("urgent", "as-urgent")} == {"b", "c"}

    play(scenario)


def test_a_missing_right_is_told_with_its_remedy(play: Play) -> None:
    asked: list[str] = []

    def forbid(call: NumberedCall) -> None:
        if call.subresource == "eviction":
            asked.append(call.name)
            raise Forbidden(403, "Forbidden", RIGHT_LACKING)

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        await world.crash()
        world.start_parley(FaultClient(world.server.client(), before=forbid))
        await world.add_pod("urgent", "one", priority=10)
        await asyncio.sleep(600)
        assert evicted == []
        status = (await world.scheduling("urgent")).status
        assert status.waiting_for == "EvictionForbidden"
        assert status.message == (
            "0 of 1 node is available: node a: claim gpu-0: 0 of 1 device free, 1 wanted. Remedy: free resources, "
            "request less, or add nodes that have what is requested. No pod could be evicted for it: Parley's "
            "account lacks the right to create pods/eviction. Install the chart with preemption.enabled=true, or "
            "change preemption of class gpu to Never"
        )
        assert 5 <= len(asked) <= 12

    play(scenario)


def test_while_the_right_is_missing_other_pods_are_left_alone_and_once_it_is_there_pods_are_evicted(
    play: Play,
) -> None:
    lacking = True

    def forbid(call: NumberedCall) -> None:
        if call.subresource == "eviction" and lacking:
            raise Forbidden(403, "Forbidden", RIGHT_LACKING)

    async def scenario(world: World) -> None:
        nonlocal lacking
        lacking = True
        evicted = await begin(world, client=FaultClient(world.server.client(), before=forbid), a=1)
        await hold(world, low=1)
        await world.add_pod("waits", "one", priority=0)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(30)
        told = await world.scheduling("waits")
        await world.settle(600)
        assert evicted == []
        assert (await world.scheduling("waits")).metadata.resource_version == told.metadata.resource_version
        lacking = False
        await world.settle(100)
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


DENIED = 'admission webhook "guard.example.com" denied the request: low must not be evicted'
QUOTING = 'admission webhook "guard.example.com" denied the request: it cannot create resource "pods/eviction"'
TERMINATING = "unable to create new content in namespace default because it is being terminated"


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "Forbidden", DENIED),
        Forbidden(403, "Forbidden", QUOTING),
        Forbidden(403, "Forbidden", TERMINATING),
        BadRequest(400, "BadRequest", DENIED),
        Invalid(422, "Invalid", "ValidatingAdmissionPolicy 'guard' denied request: low must not be evicted"),
    ],
    ids=["webhook, 403", "webhook that sounds like the authorizer", "namespace", "webhook, 400", "policy"],
)
def test_of_a_pod_that_admission_protects_another_one_is_evicted_instead(play: Play, error: ApiError) -> None:
    asked: list[str] = []

    def deny(call: NumberedCall) -> None:
        if call.subresource == "eviction":
            asked.append(call.name)
            if call.name == "low":
                raise error

    async def scenario(world: World) -> None:
        asked.clear()
        evicted = await begin(world, a=1, b=1, client=FaultClient(world.server.client(), before=deny))
        await hold(world, low=1, high=2)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(60)
        assert evicted == ["high"]
        assert await world.node_of("urgent")
        await world.add_pod("as-urgent", "one", priority=10)
        await asyncio.sleep(600)
        assert evicted == ["high"]
        status = (await world.scheduling("as-urgent")).status
        assert status.waiting_for == "NothingViable"
        assert status.message.endswith(f"Pod default/low could not be evicted: {error.message}")
        assert len(asked) <= 30

    play(scenario)


class SlowToRefuse(FaultClient):
    """An API server that takes a second to refuse evictions, and so long that `meanwhile` something happens."""

    def __init__(self, world: World, meanwhile: Callable[[], Any]) -> None:
        super().__init__(world.server.client())
        self._meanwhile = meanwhile

    async def request(self, call: Call) -> bytes:
        if call.subresource == "eviction":
            await self._meanwhile()
            await asyncio.sleep(1)
            raise TooManyRequests(429, "TooManyRequests", "it would violate the pod's disruption budget")
        return await super().request(call)


def test_what_comes_free_while_an_eviction_is_refused_is_not_missed(play: Play) -> None:
    """The pod is in no queue then: without a requeue it would not be tried again."""

    async def scenario(world: World) -> None:
        async def uncordon() -> None:
            await world.client.patch(NODES, "b", {"spec": {"unschedulable": None}})

        await begin(world, client=SlowToRefuse(world, uncordon), a=1, b=1)
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await hold(world, low=1)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(5)
        assert await world.node_of("urgent") == "b"

    play(scenario)


@pytest.mark.parametrize("arrived", [False, True])
def test_evictions_that_were_cut_short_go_on_at_once(play: Play, arrived: bool) -> None:
    """What one victim has left stays the preemptor's."""
    posted: list[str] = []

    def cut(call: NumberedCall) -> None:
        if call.subresource == "eviction" and "dryRun" not in str(call.body):
            posted.append(call.name)
            if len(posted) == 2:
                raise OutcomeUnknown("connection lost")

    async def scenario(world: World) -> None:
        client = world.server.client()
        evicted = await begin(world, client=FaultClient(client, **{"after" if arrived else "before": cut}), a=2)
        await hold(world, low=1, lower=0)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "two", priority=10)
        await world.add_pod("late", "one", priority=5)
        await world.settle(5)
        assert sorted(evicted) == ["low", "lower"]
        world.kubelets.start("a")
        await world.settle(20)
        assert await world.node_of("urgent") == "a"
        assert not await world.node_of("late")

    play(scenario)


class DeletedMeanwhile(Client):
    """Deletes the pod `urgent` while the first eviction is under way, which fails."""

    failed = False

    async def request(self, call: Call) -> bytes:
        if call.subresource == "eviction" and not self.failed:
            self.failed = True
            await self.delete(PODS, "urgent", "default")
            await asyncio.sleep(1)
            raise ServerError(500, "InternalError", "etcdserver: request timed out")
        return await super().request(call)


def test_for_a_pod_that_goes_while_pods_are_evicted_nobody_else_is_and_nothing_is_kept(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        await world.crash()
        world.start_parley(DeletedMeanwhile(world.server.client()))
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        assert evicted == ["urgent"]
        await world.delete_pod("low")
        await world.add_pod("next", "one")
        await world.settle()
        assert await world.node_of("next") == "a"

    play(scenario)


class DeletedBeforeEvictions(Client):
    """Deletes the pod `urgent`, which keeps a finalizer, while it is tested whether its victims may be evicted."""

    tested = 0

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.subresource == "eviction":
            self.tested += 1
            if self.tested == 2:
                await self.delete(PODS, "urgent", "default")
                await asyncio.sleep(1)
        return answer


def test_nobody_is_evicted_for_a_pod_that_is_being_deleted_and_has_a_finalizer(play: Play) -> None:
    """Each pod of a Job has one. Unlike other unbound pods, it is not gone at once."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, client=DeletedBeforeEvictions(world.server.client()), a=2)
        await hold(world, low=1, lower=0)
        await world.add_pod("urgent", "two", priority=10)
        finalizers = {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}
        await world.client.patch(PODS, "urgent", finalizers, "default")
        await world.settle(60)
        assert evicted == ["urgent"]

    play(scenario)
