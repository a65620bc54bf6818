"""Claims of lower priority are taken for a pod where their class says so: by evictions, and never in vain."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.grump import APART, add_grump
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, NODES, POD_SCHEDULINGS, PODS, TEMPLATES
from parley.control.caches.own_writes import OwnWrites
from parley.control.holding import Holding
from parley.control.nominations import KEPT_SECONDS
from parley.control.objects.mirror import consumer
from parley.control.objects.pod import reference
from parley.drivers.device import DeviceDriver
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
from parley.kube.informer import Informer
from parley.kube.memory.evictions import BUDGETS
from parley.negotiation.waiting import Place
from parley.scheduler.attempts import BOUND_SECONDS, Attempt
from parley.scheduler.claim_preemption import SPARED_SECONDS
from parley.scheduler.claim_victims import ClaimVictims
from parley.sdk import Allocation, Driver, Request
from parley.simulate.status_writes import patch_claim

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")

WATCHING: set[asyncio.Task[None]] = set()


async def begin(
    world: World,
    preemption: str = "LowerPriority",
    client: Client | None = None,
    drivers: Sequence[Driver[Any, Any]] | None = None,
    **devices: int,
) -> list[str]:
    """Nodes with so many devices, and a class. Returns the names of the pods that were deleted, as they are."""
    for name, count in devices.items():
        await world.add_node(name, count)
    await world.add_class(**({"preemption": preemption} if preemption else {}))
    await world.add_template("one")
    await world.add_template("two", count=2)
    world.start_parley(client, drivers)
    evicted: list[str] = []

    def changed(old: Pod | None, new: Pod | None) -> None:
        for pod in (
            old if new is None else None,
            new if new is not None and new.metadata.deletion_timestamp else None,
        ):
            if pod is not None and pod.metadata.name not in evicted:
                evicted.append(pod.metadata.name)

    WATCHING.add(asyncio.create_task(Informer(world.client, PODS, on_change=changed).run()))
    await world.settle(5)
    return evicted


async def hold(world: World, **priorities: int) -> None:
    """Pods of these priorities get a device each, one after the other."""
    for name, priority in priorities.items():
        await world.add_pod(name, "one", priority=priority)
        await world.settle(5)
        assert await world.node_of(name)


async def budget(world: World, allowed: int, **labels: str) -> None:
    """A disruption budget for pods with these labels, which allows so many disruptions."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    await world.create(BUDGETS, {"metadata": {"name": "spares"}, "spec": spec})
    counts = {"currentHealthy": 1, "desiredHealthy": 2 - allowed}
    status = {"disruptionsAllowed": allowed, "observedGeneration": 1, **counts}
    await world.client.patch(BUDGETS, "spares", {"status": status}, "default", subresource="status")


def test_of_four_holders_the_one_with_the_lowest_priority_goes(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2, b=2)
        await hold(world, three=3, one=1, two=2, four=4)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        assert evicted == ["one"]
        assert await world.node_of("urgent")

    play(scenario)


def test_the_victim_and_the_preemptor_are_told(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=1)
        await hold(world, low=1)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        note = (
            "Preempted by pod default/urgent on node a: it has a higher priority and gets what this pod's claims "
            "held"
        )
        assert await world.events_on("low") == [("Preempted", note)]
        status = (await world.scheduling("urgent")).status
        assert status.waiting_for == "Preempting"
        assert status.message == (
            "node a: pod default/low of lower priority evicted; what they hold there is kept for this pod"
        )
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == "a"

    play(scenario)


@pytest.mark.parametrize(
    ("preemption", "priority", "spec"),
    [
        ("LowerPriority", 1, {}),
        ("LowerPriority", 10, {"preemptionPolicy": "Never"}),
        ("Never", 10, {}),
        ("", 10, {}),
    ],
    ids=["equal priority", "the pod says Never", "the class says Never", "the class says nothing"],
)
def test_nobody_is_evicted(play: Play, preemption: str, priority: int, spec: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, preemption, a=1)
        await hold(world, low=1)
        await world.add_pod("waits", "one", priority=priority, **spec)
        await world.settle(700)
        assert evicted == []
        assert (await world.scheduling("waits")).status.waiting_for == "NothingViable"

    play(scenario)


def test_nobody_is_evicted_who_may_use_a_claim_that_is_gone_and_of_which_nobody_knows_what_its_class_says(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await world.add_class("spared", preemption="Never", shareable=True)
        await world.add_claim("disk", "spared")
        await world.add_pod("low", "one", claims=["disk"])
        await world.settle()
        assert await world.node_of("low") == "a"
        await world.crash()
        await world.force_away("disk")
        world.start_parley()
        await world.settle()
        await world.add_pod("also", "one")
        await world.add_pod("urgent", "two", priority=10)
        await world.settle(700)
        assert evicted == []
        await world.delete_pod("low")
        await world.settle()
        assert await world.node_of("urgent") == "a"
        assert "also" in evicted

    play(scenario)


def test_a_pod_that_found_nobody_below_it_looks_again_though_one_before_it_preempts_nobody(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("never", "two", priority=1, preemptionPolicy="Never")
        await world.settle(5)
        await world.add_pod("waits", "two", priority=1)
        await world.settle(5)
        await hold(world, low=0)
        await world.publish("a", ["gpu-0", "gpu-1"])
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("waits") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_who_waits_behind_a_pod_that_evicts_nobody_for_a_while_does_not_wait_for_that(play: Play) -> None:
    """What the first one had others evicted for, one of higher priority got."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        for node in ("a", "b"):
            await world.add_pod(f"low-{node}", "one", nodeSelector={"kubernetes.io/hostname": node})
        await world.settle(5)
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await world.add_pod("first", "one", priority=10, schedulerName="asleep")
        await world.settle(2)
        await world.add_pod("high", "one", priority=20)
        (mirror,) = [mirror for mirror in await world.mirrors() if mirror.metadata.name.startswith("first")]
        await patch_claim(world.client, mirror, {"allocation": None, "reservedFor": None})
        await world.add_pod("second", "one", priority=10)
        await world.settle(5)
        await world.client.patch(CLASSES, "gpu", {"allocationTimeoutSeconds": 100})
        await world.settle(5)
        assert await world.node_of("high") == "a"
        assert evicted == ["low-a"]
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": None}})
        await asyncio.sleep(5)
        assert evicted == ["low-a", "low-b"]
        await asyncio.sleep(15)
        assert await world.node_of("second") == "b"

    play(scenario)


def test_who_loses_its_node_to_a_higher_one_evicts_no_more_pods_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, client=SlowEvictions(world.server.client()), a=2)
        await hold(world, lowest=0, lower=1)
        await world.add_pod("needs-both", "two", priority=5)
        await asyncio.sleep(SlowEvictions.seconds * 2.5)  # asked what both evictions would do, and begun with one
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(60)
        assert await world.node_of("urgent") == "a"
        assert (await world.pod("lower")).metadata.deletion_timestamp is None
        assert await world.node_of("needs-both") == ""

    play(scenario)


def test_who_gets_a_node_beside_a_higher_one_does_not_take_what_that_waits_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, client=SlowEvents(world.server.client()), a=3)
        await hold(world, lowest=0)
        await world.add_pod("lower", "two", priority=3)
        await world.settle(5)
        world.kubelets.stop("a")
        await world.add_pod("second", "one", priority=2)
        await world.settle(60)  # "lowest" is on its way out for it
        await world.add_pod("first", "two", priority=10)
        await asyncio.sleep(1)  # "lower" is evicted, and the Event about it under way
        assert (await world.pod("lower")).metadata.deletion_timestamp
        await world.finish_pod("lower")
        await world.settle(60)
        assert [await world.node_of(name) for name in ("first", "second")] == ["a", ""]
        await world.finish_pod("lowest")
        await world.settle(60)
        assert await world.node_of("second") == "a"

    play(scenario)


def test_nobody_else_is_evicted_where_a_higher_one_has_taken_what_the_first_victim_left(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=SlowEvents(world.server.client()), a=2)
        await hold(world, lowest=0, lower=1)
        await world.add_pod("needs-both", "two", priority=5)
        await asyncio.sleep(1)  # "lowest" is evicted, and the Event about it under way
        assert evicted == ["lowest"]
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(60)
        assert evicted == ["lowest"]
        assert [await world.node_of(name) for name in ("urgent", "needs-both")] == ["a", ""]

    play(scenario)


class SlowEvents(Client):
    """Events are written late."""

    async def request(self, call: Call) -> bytes:
        if call.resource.plural == "events":
            await asyncio.sleep(5)
        return await super().request(call)


class SlowEvictions(Client):
    """Each takes so long."""

    seconds = 2.0

    async def request(self, call: Call) -> bytes:
        if call.subresource == "eviction":
            await asyncio.sleep(self.seconds)
        return await super().request(call)


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


def test_nobody_is_evicted_where_the_pod_would_not_fit_all_the_same(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, low=1, lower=0)
        await world.taint("a", "maintenance", "NoSchedule")
        await world.taint("b", "maintenance", "NoSchedule")
        await world.add_pod("waits", "one", priority=10)
        await world.settle(700)
        assert evicted == []

    play(scenario)


def test_claims_of_a_class_that_does_not_say_so_are_not_taken(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_class("kept")
        await world.add_template("mine", "kept")
        await world.add_pod("low", "mine")
        await world.settle()
        await world.add_pod("waits", "one", priority=10)
        await world.settle(700)
        assert evicted == []

    play(scenario)


def test_nor_of_a_pod_that_waits_for_one_of_such_a_class_still(play: Play) -> None:
    """A standalone driver has yet to allocate it."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        never = asyncio.Event()

        async def wait(_: str) -> None:
            await never.wait()

        world.start_driver(ShelfDriver(Behaviour(other=5, trouble=wait)))
        await world.add_class("shelf")
        await world.client.patch(CLASSES, "shelf", {"driverName": ShelfDriver.name})
        await world.add_template("place", "shelf")
        await world.add_pod("low", "one", "place", nodeName="a")
        await world.settle()
        assert await world.devices() == {("a", "gpu-0"): 1}
        await world.add_pod("waits", "one", priority=10)
        await world.settle(300)
        assert evicted == []

    play(scenario)


def test_a_pod_that_waits_hears_when_others_may_be_evicted_for_what_they_hold(play: Play) -> None:
    """What decides is the class of what they hold, which is another one than the pod's."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_class("kept")
        await world.add_template("mine", "kept")
        await world.add_pod("low", "mine")
        await world.settle()
        await world.add_pod("waits", "one", priority=10)
        await world.settle()
        assert evicted == []
        await world.client.patch(CLASSES, "kept", {"preemption": "LowerPriority"})
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("waits") == "a"

    play(scenario)


def test_as_few_as_possible_go(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2, b=2)
        await world.add_pod("both", "two", priority=1)
        await world.settle()
        await hold(world, small=1, smaller=1)
        await world.add_pod("urgent", "two", priority=10)
        await world.settle()
        assert evicted == ["both"]
        assert await world.node_of("urgent") == await world.node_of("urgent") != ""

    play(scenario)


def test_what_a_victim_gives_up_is_kept_for_the_preemptor(play: Play) -> None:
    """Of equal priority, and earlier in the line than the preemptor; but it may not preempt."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        await world.add_pod("patient", "one", priority=10, preemptionPolicy="Never")
        await world.settle()
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        assert evicted == ["lower"]
        await world.add_pod("late", "one", priority=5, preemptionPolicy="Never")
        await world.settle()
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == "a"
        assert evicted == ["lower"]
        assert not await world.node_of("patient")
        assert not await world.node_of("late")
        await world.delete_pod("low")
        await world.settle()
        # The second scheduler asks about both by itself, about one of them before the device is released.
        assert await world.node_of("patient") == "a" or world.scheduling_path == "extender"

    play(scenario)


def test_two_preemptors_for_one_victim_evict_it_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        world.kubelets.stop("a")
        for name in ("urgent", "also"):
            await world.add_pod(name, "one", priority=10)
        await world.settle()
        world.kubelets.start("a")
        await world.settle(700)
        assert evicted == ["low"]
        assert {await world.node_of("urgent"), await world.node_of("also")} == {"a", ""}

    play(scenario)


def test_two_preemptors_get_a_victim_each_at_the_same_time(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=3)
        await hold(world, high=20, low=1, lower=0)
        world.kubelets.stop("a")
        for name in ("urgent", "also"):
            await world.add_pod(name, "one", priority=10)
        await world.settle()
        assert sorted(evicted) == ["low", "lower"]
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == await world.node_of("also") == "a"

    play(scenario)


def test_a_higher_one_that_comes_later_gets_it_and_the_first_takes_another(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        await world.add_pod("higher", "one", priority=20)
        await world.settle(120)
        assert evicted == ["lower", "low"]
        world.kubelets.start("a")
        await world.settle(120)
        assert await world.node_of("urgent") == await world.node_of("higher") == "a"

    play(scenario)


def test_a_budget_spares_one_and_another_goes(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        await world.client.patch(PODS, "lower", {"metadata": {"labels": {"app": "spared"}}}, "default")
        await budget(world, 0, app="spared")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_where_a_budget_spares_all_the_pod_waits_until_it_allows_one(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        await budget(world, 0, app="test")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(SPARED_SECONDS + 5)
        assert evicted == []
        assert (await world.scheduling("urgent")).status.message == (
            "0 of 1 node is available: node a: claim gpu-0: 0 of 1 device free, 1 wanted. Remedy: free resources, "
            "request less, or add nodes that have what is requested. Pod default/low could not be evicted: "
            "Cannot evict pod as it would violate the pod's disruption budget."
        )
        await world.client.patch(
            BUDGETS, "spares", {"status": {"disruptionsAllowed": 1}}, "default", subresource="status"
        )
        await world.settle(SPARED_SECONDS + 5)
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_a_pod_that_a_budget_spares_is_named_in_its_own_namespace_alone(play: Play) -> None:
    """Also where a pod of that namespace was told first."""

    async def scenario(world: World) -> None:
        await begin(world, a=1)
        await hold(world, low=1)
        await budget(world, 0, app="test")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(SPARED_SECONDS / 2)
        for kind, name in ((TEMPLATES, "one"), (PODS, "urgent")):
            like = await world.client.get(kind.untyped(), name, "default")
            body = {"metadata": {"name": name}, "spec": like["spec"]}
            await world.client.create(kind.untyped(), body, "other")
        await world.settle(SPARED_SECONDS / 4)

        own, foreign = [await world.client.get(POD_SCHEDULINGS, "urgent", name) for name in ("default", "other")]
        why = "could not be evicted: Cannot evict pod as it would violate the pod's disruption budget."
        assert own.status.message.endswith(f"Pod default/low {why}")
        assert foreign.status.message.endswith(f"A pod elsewhere {why}")

    play(scenario)


def test_who_waits_beside_a_pod_whose_victim_is_spared_is_not_written_to_again_and_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        await budget(world, 0, app="test")
        await world.add_pod("urgent", "one", priority=10)
        await world.add_pod("waiting", "one", priority=1)
        await world.settle(SPARED_SECONDS - 5)
        before = (await world.scheduling("waiting")).metadata.resource_version
        await world.settle(10 * SPARED_SECONDS)
        assert (await world.scheduling("waiting")).metadata.resource_version == before
        assert evicted == []

    play(scenario)


def test_nobody_is_evicted_where_a_budget_spares_one_of_two_that_would_have_to_go(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        await world.client.patch(PODS, "low", {"metadata": {"labels": {"app": "spared"}}}, "default")
        await budget(world, 0, app="spared")
        await world.add_pod("urgent", "two", priority=10)
        await world.settle(300)
        assert evicted == []

    play(scenario)


def test_two_plans_do_not_share_the_last_disruption_that_a_budget_allows(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=SlowEvictions(world.server.client()), a=2, b=2)
        await hold(world, one=0, two=1, three=0, four=1)
        assert await world.node_of("one") == await world.node_of("two") != await world.node_of("three")
        for name in ("two", "four"):
            await world.client.patch(PODS, name, {"metadata": {"labels": {"app": "spared"}}}, "default")
        await budget(world, 1, app="spared")
        for name in ("urgent", "as-urgent"):
            await world.add_pod(name, "two", priority=10)
        await world.settle(60)
        assert evicted in (["one", "two"], ["three", "four"])

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
            raise Forbidden(403, "Forbidden", 'cannot create resource "pods/eviction"')

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


DENIED = 'admission webhook "guard.example.com" denied the request: low must not be evicted'
TERMINATING = "unable to create new content in namespace default because it is being terminated"


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "Forbidden", DENIED),
        Forbidden(403, "Forbidden", TERMINATING),
        BadRequest(400, "BadRequest", DENIED),
        Invalid(422, "Invalid", "ValidatingAdmissionPolicy 'guard' denied request: low must not be evicted"),
    ],
    ids=["webhook, 403", "namespace", "webhook, 400", "policy"],
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
    """The pod is in no line then: nobody would look at it again."""

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


def test_what_a_preemptor_gives_back_claim_by_claim_is_kept_for_it(play: Play) -> None:
    """Its scheduler could not bind it, and let go of its claims."""

    async def mine(world: World) -> list[BuiltinClaim]:
        return [mirror for mirror in await world.mirrors() if mirror.metadata.name.startswith("urgent-")]

    async def scenario(world: World) -> None:
        await begin(world, a=2)
        await world.add_class("exact", placement="Exact", preemption="LowerPriority")
        await world.add_template("offered", "exact")
        await hold(world, low=1, lower=0)
        await world.add_pod("urgent", "offered", "offered", priority=10, schedulerName="asleep")
        await world.settle(5)
        await world.add_pod("equal", "one", priority=10)
        await world.settle(5)
        for users in ([consumer(reference(await world.pod("urgent")))], []):
            for mirror in await mine(world):
                await patch_claim(world.client, mirror, {"reservedFor": users})
            await world.settle(1)
            assert sum((await world.devices()).values()) == (2 if users else 0)
        await world.settle(60)
        assert not await world.node_of("equal")

    play(scenario)


def test_a_recreated_victim_evicts_nobody(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=1)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        await world.add_pod("again", "one", priority=1)
        await world.settle(700)
        assert evicted == ["low"]
        assert not await world.node_of("again")

    play(scenario)


def test_a_controller_that_is_restarted_evicts_nobody_else_while_the_victim_ends(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=1, lower=0)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.settle()
        await world.crash()
        world.start_parley()
        await world.settle(120)
        assert evicted == ["lower"]
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("urgent") == "a"
        assert evicted == ["lower"]

    play(scenario)


def test_a_preemptor_that_is_deleted_leaves_what_was_kept_for_it_to_others(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=1)
        await hold(world, low=1)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10)
        await world.add_pod("next", "one", priority=0)
        await world.settle()
        await world.delete_pod("urgent")
        world.kubelets.start("a")
        await world.settle()
        assert await world.node_of("next") == "a"

    play(scenario)


def test_after_ten_minutes_a_victim_that_does_not_end_is_not_waited_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, low=1, lower=0)
        stuck = await world.node_of("lower")
        world.kubelets.stop(stuck)
        await world.add_pod("urgent", "one", priority=10)
        await asyncio.sleep(KEPT_SECONDS - 5)
        assert evicted == ["lower"]
        await asyncio.sleep(10)
        assert evicted == ["lower", "low"]
        assert await world.node_of("urgent") == ({"a", "b"} - {stuck}).pop()

    play(scenario)


class Silent(DeviceDriver):
    """Hands out devices, and cannot tell what would be viable if claims were free."""

    viable_without = Driver.viable_without


def test_for_claims_of_a_driver_that_cannot_tell_nobody_is_evicted(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.crash()
        world.start_parley(drivers=[Silent()])
        await hold(world, low=1)
        await world.add_pod("waits", "one", priority=10)
        await world.settle(700)
        assert evicted == []

    play(scenario)


def test_what_victims_request_of_a_node_is_counted_as_free_and_a_pod_that_needs_more_evicts_nobody(
    play: Play,
) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("other", nodeName="a", priority=20, containers=requesting(cpu=2))
        await world.add_pod("low", "one", containers=requesting(cpu=6))
        await world.settle()
        await world.add_pod("large", "one", priority=10, containers=requesting(cpu=7))
        await world.settle(300)
        assert evicted == []
        await world.add_pod("fits", "one", priority=10, containers=requesting(cpu=6))
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("fits") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_where_ordinary_pods_have_the_cpu_the_scheduler_evicts_these_afterwards(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        for node, level in (("a", 5), ("b", 20)):
            await world.add_pod(f"ordinary-{node}", nodeName=node, priority=level, containers=requesting(cpu=2))
            await world.add_pod(f"low-{node}", "one", nodeName=node, containers=requesting(cpu=4))
        await world.settle()
        world.kubelets.stop("a")
        await world.add_pod("large", "one", priority=10, containers=requesting(cpu=7))
        await world.settle(10)
        assert evicted == ["low-a"]
        assert (await world.scheduling("large")).status.message == (
            "node a: pod default/low-a of lower priority evicted; what they hold there is kept for this pod, and "
            "its scheduler has to evict other pods of lower priority there"
        )
        world.kubelets.start("a")
        await world.settle()
        assert evicted == ["low-a", "ordinary-a"]
        assert await world.node_of("large") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_the_node_that_others_left_for_it_comes_before_one_where_it_would_fit_at_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await world.add_pod("ordinary", nodeName="a", priority=5, containers=requesting(cpu=2))
        await world.add_pod("low-a", "one", nodeName="a", containers=requesting(cpu=4))
        await world.add_pod("low-b", "one", nodeName="b", priority=9, containers=requesting(cpu=4))
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await world.settle()
        world.kubelets.stop("a")
        await world.add_pod("large", "one", priority=10, containers=requesting(cpu=7))
        await world.settle(10)
        assert evicted == ["low-a"]
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": False}})
        await world.settle(10)
        world.kubelets.start("a")
        await world.settle()
        assert evicted == ["low-a", "ordinary"]
        assert await world.node_of("large") == "a"

    play(scenario)


def test_for_a_pod_that_is_never_bound_few_are_evicted(play: Play) -> None:
    """Its scheduler refuses it for reasons that Parley does not know; whatever was evicted is made again."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("urgent", "one", priority=10, schedulerName="asleep")
        await world.settle(20)
        for number in range(4 * 120):
            if not any(pod.metadata.name.startswith("low") for pod in (await world.client.list(PODS)).items):
                await world.add_pod(f"low-{number}", "one")
            await world.add_pod(f"job-{number}", nodeName="a")  # its end makes Parley try refused nodes again
            await asyncio.sleep(30)
            await world.delete_pod(f"job-{number}")
        assert 1 <= sum(name.startswith("low") for name in evicted) <= 7  # in four hours: see EVICTIONS

    play(scenario)


def test_a_pod_of_lower_priority_that_is_being_bound_is_not_deleted_before_it_runs(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("low", "one", schedulerName="asleep")
        await world.settle(5)
        await world.add_pod("urgent", "one", priority=10)
        await asyncio.sleep(BOUND_SECONDS / 2)
        assert evicted == []
        target = {"apiVersion": "v1", "kind": "Node", "name": "a"}
        await world.client.create_subresource(PODS, "low", "binding", {"target": target}, "default")
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


async def contend_for_the_disk(world: World, evicted: list[str], scheduler: str) -> None:
    """A pod for which another one is evicted names it, and then one of lower priority does."""
    world.kubelets.stop("a")
    await world.add_pod("urgent", "one", claims=["disk"], priority=10)
    await world.settle(5)
    assert evicted == ["low"]
    await world.add_pod("late", claims=["disk"], priority=5, schedulerName=scheduler)


@pytest.mark.parametrize("scheduler", ["default-scheduler", "parley"])
@pytest.mark.parametrize("deleted", [False, True], ids=["it gets both", "it is deleted"])
def test_a_free_named_claim_is_kept_for_the_preemptor_too(play: Play, deleted: bool, scheduler: str) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2, b=1)
        await world.add_claim("disk")
        await world.add_pod("low", "two")
        await world.settle(5)
        await contend_for_the_disk(world, evicted, scheduler)
        await world.settle(5)
        assert not await world.node_of("late")
        if deleted:
            await world.delete_pod("urgent")
        world.kubelets.start("a")
        await world.settle(60)
        assert bool(await world.node_of("late")) is deleted
        assert deleted or await world.node_of("urgent") == "a"

    play(scenario)


def test_nothing_is_kept_for_a_pod_one_of_whose_named_claims_is_deleted(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=3)
        await hold(world, low=1)
        await world.add_claim("disk")
        await world.add_claim("tape", mode="Immediate")
        world.kubelets.stop("a")
        await world.settle(5)
        await world.add_pod("urgent", "one", claims=["disk", "tape"], priority=10)
        await world.settle(5)
        assert evicted == ["low"]
        await world.add_pod("late", claims=["tape"], priority=5)
        await world.settle(5)
        assert not await world.node_of("late")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle(5)
        assert await world.node_of("late") == "a"

    play(scenario)


@pytest.mark.parametrize("scheduler", ["default-scheduler", "parley"])
def test_a_claim_without_users_is_kept_until_the_preemptor_is_gone_and_the_next_pod_hears_of_it(
    play: Play, scheduler: str
) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, low=0)
        await world.add_claim("disk", mode="Immediate")
        await world.settle(5)
        await contend_for_the_disk(world, evicted, scheduler)
        await world.settle(60)
        assert not await world.node_of("late")
        await world.delete_pod("urgent")
        await world.settle(5)
        assert await world.node_of("late") == "a"

    play(scenario)


def test_what_was_offered_before_is_kept_for_the_preemptor_too(play: Play) -> None:
    """A scheduler chooses a node that was offered before others were evicted there for another pod."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await world.add_class("exact", placement="Exact", preemption="LowerPriority")
        await world.add_template("offered", "exact")
        await hold(world, low=1)
        await world.add_pod("slow", "offered", priority=5, schedulerName="asleep")
        await world.settle(2)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "two", priority=10)
        await world.settle(2)
        assert evicted == ["low"]
        mirrors = [mirror for mirror in await world.mirrors() if mirror.metadata.name.startswith("slow")]
        users = {"reservedFor": [consumer(reference(await world.pod("slow")))]}
        await patch_claim(world.client, mirrors[0], users)
        await world.settle(2)
        world.kubelets.start("a")
        await world.settle(30)
        assert await world.node_of("urgent") == "a"
        assert sum((await world.devices()).values()) == 2

    play(scenario)


def test_what_others_give_up_stays_the_preemptors_when_its_driver_fails_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a scheduler chose the node: the failure is no reason of the scheduler's."""
    jams = ["jammed"]
    allocate = DeviceDriver.allocate

    async def jamming(driver: Any, request: Any, node: str) -> Any:
        if len(request.claims) == 2 and jams:
            raise RuntimeError(jams.pop())
        return await allocate(driver, request, node)

    monkeypatch.setattr(DeviceDriver, "allocate", jamming)

    async def scenario(world: World) -> None:
        await begin(world, a=2)
        await world.add_class("exact", placement="Exact", preemption="LowerPriority")
        await world.add_template("offered", "exact")
        await hold(world, low=1, lower=0)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "offered", "offered", priority=10)
        await world.settle(5)
        await world.add_pod("late", "one", priority=5)
        await world.settle(5)
        world.kubelets.start("a")
        await world.settle(60)
        assert not jams
        assert await world.node_of("urgent") == "a"
        assert not await world.node_of("late")
        told = [reason for reason, _ in await world.events_on("urgent")]
        assert sorted(told) == ["AllocationFailed", "Preempting"]

    play(scenario)


def test_victims_are_looked_for_where_the_pod_could_be_alone(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    holder = ClaimVictims._holder

    def counted(victims: ClaimVictims, holding: Holding) -> Any:
        looks.append(holding.node)
        return holder(victims, holding)

    async def scenario(world: World) -> None:
        nodes = {f"n{number}": 2 for number in range(10)}
        evicted = await begin(world, "LowerPriority", None, None, **nodes)
        await hold(world, **{f"low-{number}": 1 for number in range(20)})
        monkeypatch.setattr(ClaimVictims, "_holder", counted)
        await world.add_pod("urgent", "one", priority=10, nodeSelector={"kubernetes.io/hostname": "n7"})
        await world.settle()
        assert len(evicted) == 1
        assert await world.node_of("urgent") == "n7"
        assert set(looks) == {"n7"}

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


@pytest.mark.parametrize("guarded", [False, True], ids=["", "a budget spares one elsewhere"])
def test_where_a_scheduler_refused_the_pod_others_are_evicted_after_a_pause(play: Play, guarded: bool) -> None:
    """While it was refused, a pod of lower priority got the device."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        if guarded:
            await world.add_node("b", 1)
            await world.add_pod("guarded", "one", nodeSelector={"kubernetes.io/hostname": "b"})
            await world.client.patch(PODS, "guarded", {"metadata": {"labels": {"app": "spared"}}}, "default")
            await budget(world, 0, app="spared")
            await world.settle(5)
        await world.add_pod("urgent", "one", priority=10, schedulerName="asleep")
        await world.settle(3)
        await world.add_pod("low", "one")
        await world.settle(3)
        (mirror,) = [mirror for mirror in await world.mirrors() if mirror.metadata.name.startswith("urgent")]
        cleared = {"allocation": None, "reservedFor": None}
        await world.client.patch(
            BUILTIN_CLAIMS, mirror.metadata.name, {"status": cleared}, "default", subresource="status"
        )
        await asyncio.sleep(2)
        assert await world.node_of("low") == "a"
        assert evicted == []
        await asyncio.sleep(120 if guarded else 30)
        assert evicted == ["low"]

    play(scenario)


def test_for_a_pod_that_the_scheduler_refuses_where_it_could_be_others_are_evicted_elsewhere(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, low=0)
        free = {"a": "b", "b": "a"}[await world.node_of("low")]
        await add_grump(world, free, priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await world.settle()
        assert evicted == ["low"]
        assert await world.node_of("urgent") not in ("", free)

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_pod_that_the_scheduler_refuses_where_it_could_be_is_told_why_nobody_is_evicted_elsewhere(
    play: Play,
) -> None:
    def forbid(call: NumberedCall) -> None:
        if call.subresource == "eviction":
            raise Forbidden(403, "Forbidden", 'cannot create resource "pods/eviction"')

    async def scenario(world: World) -> None:
        await begin(world, client=FaultClient(world.server.client(), before=forbid), a=1, b=1)
        await hold(world, low=0)
        free = {"a": "b", "b": "a"}[await world.node_of("low")]
        await add_grump(world, free, priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await asyncio.sleep(600)
        status = (await world.scheduling("urgent")).status
        assert status.waiting_for == "EvictionForbidden"
        assert status.message.startswith(f"node {free}: viable, but refused by the scheduler. ")
        assert "No pod could be evicted for it: Parley's account lacks the right" in status.message

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_what_the_scheduler_refused_does_not_delay_evictions_elsewhere(play: Play) -> None:
    """Nodes that it refused are offered again after pauses of up to five minutes."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await world.add_pod("low", "one", schedulerName="asleep", nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle(5)
        await add_grump(world, "b", priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await asyncio.sleep(BOUND_SECONDS / 2)
        target = {"apiVersion": "v1", "kind": "Node", "name": "a"}
        await world.client.create_subresource(PODS, "low", "binding", {"target": target}, "default")
        await asyncio.sleep(5)
        assert evicted == ["low"]
        await asyncio.sleep(60)
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_a_named_claim_goes_to_the_pod_that_others_were_evicted_for_not_to_its_equal(play: Play) -> None:
    """The first of them preempts nobody, so what it can't have it does not wait for."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=0)
        await world.add_pod("first", claims=["disk"], priority=5, preemptionPolicy="Never")
        await world.settle(2)
        await world.add_pod("second", claims=["disk"], priority=5)
        await world.settle(2)
        await world.add_claim("disk")
        await world.settle()
        assert evicted == ["low"]
        assert [await world.node_of(name) for name in ("first", "second")] == ["", "a"]

    play(scenario)


def test_for_a_claim_that_is_about_to_be_given_back_nobody_is_evicted(play: Play) -> None:
    """Its last user ended while no controller ran: it can be allocated where something is free."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await world.add_class("for-several", shareable=True, preemption="LowerPriority")
        await world.add_claim("common", "for-several")
        await world.add_pod("last", claims=["common"])
        await hold(world, low=0)
        await world.add_node("b", 2)
        await world.crash()
        await world.finish_pod("last")
        await world.add_pod("urgent", "one", claims=["common"], priority=10)
        await world.settle()
        world.start_parley()
        await world.settle()
        assert evicted == []
        assert await world.node_of("urgent") == "b"

    play(scenario)


def test_the_pause_between_evictions_for_a_pod_doubles() -> None:
    attempt, pauses = Attempt(Place(0, 0)), []
    for _ in range(8):
        attempt.evictions.begin(0.0)
        pauses.append(attempt.evictions.left(0.0))

    assert pauses == [60, 120, 240, 480, 960, 1920, 3840, 4800]
    assert attempt.evictions.left(5000.0) == 0


@pytest.mark.scheduling_paths("native")
def test_what_the_scheduler_refuses_a_preemptor_is_not_kept_for_it(play: Play) -> None:
    """Parley does not know what keeps the pod from the node. On the other one a pod of higher priority has all."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, high=20, low=0)
        node = await world.node_of("low")
        await add_grump(world, node, priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await world.settle(30)
        assert evicted == ["low"]
        await world.add_pod("later", "one", priority=1)
        await asyncio.sleep(600)
        assert await world.node_of("urgent") == ""
        assert evicted == ["low", "later"]  # that one had it until the next try, after the preemptor's pause

    play(scenario)


class TakesItsTime(DeviceDriver):
    """Looks for devices late, for pods of these names as long as they are held up."""

    def __init__(self) -> None:
        super().__init__()
        self.held_up = {"slow": asyncio.Event(), "urgent": asyncio.Event()}

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        if (gate := self.held_up.get(request.pod.name)) is not None:
            await gate.wait()
        return await super().allocate(request, node)


@pytest.mark.scheduling_paths("native")
def test_what_was_kept_since_a_slow_driver_began_to_allocate_is_given_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = TakesItsTime()
        evicted = await begin(world, drivers=[driver], a=1)
        for name, priority in (("slow", 0), ("quick", 1), ("urgent", 10)):
            await world.add_pod(name, "one", priority=priority)
            await asyncio.sleep(4)
        assert evicted == ["quick"]

        driver.held_up["slow"].set()
        await asyncio.sleep(5)
        assert await world.node_of("slow") == ""
        driver.held_up["urgent"].set()
        await world.settle(60)
        assert await world.node_of("urgent") == "a"

    play(scenario)


class ComesUpLate(DeviceDriver):
    """Has a device for the pod `slow` at once, and is done with it late."""

    def __init__(self) -> None:
        super().__init__()
        self.is_up = asyncio.Event()

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        allocated = await super().allocate(request, node)
        if request.pod.name == "slow":
            await self.is_up.wait()
        return allocated


@pytest.mark.parametrize("others", [{}, {"low": 0}])
def test_what_was_being_allocated_when_a_pod_was_looked_at_is_taken_once_it_is_there(
    play: Play, others: dict[str, int]
) -> None:
    async def scenario(world: World) -> None:
        driver = ComesUpLate()
        evicted = await begin(world, drivers=[driver], a=2)
        for name, priority in others.items():
            await world.add_pod(name, "one", priority=priority)
        await world.settle(2)
        await world.add_pod("slow", "one" if others else "two", priority=1)
        await asyncio.sleep(2)
        await world.add_pod("urgent", "two", priority=10)
        await asyncio.sleep(10)
        assert evicted == []

        driver.is_up.set()
        await world.settle(30)
        assert sorted(evicted) == sorted([*others, "slow"])
        assert await world.node_of("urgent") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("extender")
def test_nobody_is_evicted_before_all_of_a_pods_claims_are_seen_as_they_are(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that was just cleared, which the cache has yet to show, needs a device as well."""
    is_stale, behind = OwnWrites.is_stale, {"disk"}
    monkeypatch.setattr(OwnWrites, "is_stale", lambda self, meta: meta.name in behind or is_stale(self, meta))

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=2)
        await hold(world, high=20, low=0)
        await world.add_claim("disk")
        await asyncio.sleep(1)
        await world.add_pod("urgent", "one", claims=["disk"], priority=10)
        await asyncio.sleep(30)
        behind.clear()
        await world.change_pod("urgent")
        await world.settle(30)
        assert evicted == []

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_no_more_than_sixty_pods_are_evicted_within_a_minute(play: Play) -> None:
    """A plan counts with all of its victims before the first of them goes: a part of them would go in vain."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=31, b=31)
        await world.add_template("many", count=31)
        await hold(world, **{f"low-{number}": 0 for number in range(62)})
        for name in ("first", "second"):
            await world.add_pod(name, "many", priority=10)
        await asyncio.sleep(50)
        assert len(evicted) == 31
        await asyncio.sleep(60)
        assert len(evicted) == 62
        assert sorted([await world.node_of("first"), await world.node_of("second")]) == ["a", "b"]

    play(scenario)
