"""Pods of the second scheduler have pods of lower priority evicted for claims; see also `claim_preemption`,
whose tests are played for both ways."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.claim_preemption.preempting import SlowEvictions, begin, budget, hold
from tests.unit.scheduler.conftest import AWAY
from tests.unit.scheduler.grump import APART, add_grump

from parley.api.resources import CLASSES, PODS
from parley.control.nominations import KEPT_SECONDS
from parley.kube.client import Client
from parley.kube.memory.evictions import BUDGETS
from parley.scheduler.extender.posting import LOOK_AGAIN

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]

BOTH = ("default-scheduler", "parley")


async def begun(world: World, client: Client | None = None) -> list[str]:
    """Pod `low` has the one device of node `a`. Pod `urgent` of higher priority waits for it; its scheduler is the
    test. Returns who is evicted, as `begin` does."""
    evicted = await begin(world, client=client, a=1)
    await hold(world, low=1)
    await world.add_pod("urgent", "one", priority=10, schedulerName=AWAY)
    await world.settle(5)
    return evicted


async def victim_stays(world: World, **urgent: Any) -> list[str]:
    """Pod `low` has one of the two devices of node `a`, whose kubelet is down. It is evicted for pod `urgent`,
    which needs both. Returns who is evicted, as `begin` does."""
    evicted = await begin(world, a=2)
    await hold(world, low=0)
    world.kubelets.stop("a")
    await world.add_pod("urgent", "two", priority=10, **urgent)
    await world.settle(5)
    assert evicted == ["low"]
    return evicted


async def asked(world: World, *nodes: str) -> list[str]:
    """The scheduler of pod `urgent` asks about these nodes. Returns those that are viable."""
    answer = await world.ask("filter", await world.question("urgent", *nodes))
    return list(answer["NodeNames"] or ())


async def is_leaving(world: World, name: str) -> bool:
    return (await world.pod(name)).metadata.deletion_timestamp is not None


def test_filter_answers_at_once_and_others_are_evicted_afterwards(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world, SlowEvictions(world.server.client()))
        before = asyncio.get_running_loop().time()
        assert await asked(world, "a") == []
        assert asyncio.get_running_loop().time() == before
        assert not await is_leaving(world, "low")
        await world.settle(5)
        assert await asked(world, "a") == ["a"]

    play(scenario)


def test_its_scheduler_is_made_to_ask_when_the_victims_have_left_and_not_before(play: Play) -> None:
    async def touched(world: World) -> str:
        return (await world.pod("urgent")).metadata.annotations.get(LOOK_AGAIN, "")

    async def scenario(world: World) -> None:
        await begin(world, a=1, b=1)
        await hold(world, low=1, high=20)
        node = await world.node_of("low")
        world.kubelets.stop(node)
        await world.add_pod("urgent", "one", priority=10, schedulerName=AWAY)
        await world.settle(5)
        await asked(world, "a", "b")
        await world.settle(5)
        assert await is_leaving(world, "low")
        await world.publish("c", ["gpu-0"])  # the scheduler does not propose that node
        await world.settle(5)
        assert await touched(world) == ""
        world.kubelets.start(node)
        await world.settle(5)
        assert await touched(world) != ""
        assert await asked(world, "a", "b") == [node]

    play(scenario)


def test_it_goes_where_others_left_though_another_node_would_do_by_then(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, a=1, b=2)
        await hold(world, low=1, high=20, higher=21)
        node = await world.node_of("low")
        await world.add_pod("urgent", "one", priority=10, schedulerName=AWAY)
        await world.settle(5)
        await asked(world, "a", "b")
        await world.settle(5)
        await world.delete_pod("high")
        await world.delete_pod("higher")
        await world.settle(5)
        assert await asked(world, "a", "b") == [node]

    play(scenario)


def test_a_victim_that_has_the_cpu_too_is_evicted_though_no_node_passes_the_schedulers_filters(play: Play) -> None:
    """The scheduler would evict it itself, and no budget would be asked; it is told that this is of no use."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("low", "one", containers=requesting(cpu=6))
        await world.settle(5)
        await budget(world, 0, app="test")
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=6))
        await world.settle(60)
        assert world.calls.count["preempt"] > 0
        assert evicted == []
        assert "could not be evicted" in (await world.scheduling("urgent")).status.message
        status = {"status": {"disruptionsAllowed": 1}}
        await world.client.patch(BUDGETS, "spares", status, "default", subresource="status")
        await world.settle(60)
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_where_its_scheduler_can_evict_ordinary_pods_nobody_is_evicted_for_claims(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await world.add_pod("plain", nodeName="b", priority=1, containers=requesting(cpu=8))
        await world.add_pod("low", "one", nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle(5)
        world.kubelets.stop("b")
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4))
        await world.settle(60)
        assert evicted == ["plain"]
        world.kubelets.start("b")
        await world.settle(60)
        assert evicted == ["plain"]
        assert await world.node_of("urgent") == "b"

    play(scenario)


def test_its_scheduler_evicts_nobody_on_other_nodes_while_others_leave_one_for_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=0)
        await world.add_pod("plain", nodeName="b", priority=1, containers=requesting(cpu=8))
        await hold(world, low=0)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=4))
        await world.settle(5)
        await world.publish("b", ["gpu-0"])
        await world.settle(60)
        assert evicted == ["low"]
        world.kubelets.start("a")
        await world.settle(60)
        assert await world.node_of("urgent") == "a"
        assert evicted == ["low"]

    play(scenario)


def test_a_node_that_was_proposed_and_is_full_by_now_keeps_nobody_from_being_evicted(play: Play) -> None:
    """What the claim asks for has come free there, and pods of higher priority have the CPU."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        on: dict[str, dict[str, Any]] = {
            node: {"nodeSelector": {"kubernetes.io/hostname": node}} for node in ("a", "b")
        }
        await world.add_pod("high", "one", priority=20, **on["a"])
        await world.add_pod("low", "one", containers=requesting(cpu=6), **on["b"])
        await world.settle(5)
        await world.client.patch(PODS, "low", {"metadata": {"labels": {"app": "spared"}}}, "default")
        await budget(world, 0, app="spared")
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=6))
        await world.settle(5)
        await world.add_pod("plain", nodeName="a", priority=20, containers=requesting(cpu=6))
        await world.settle(5)
        await world.finish_pod("high")
        await world.settle(60)
        assert evicted == []
        status = {"status": {"disruptionsAllowed": 1}}
        await world.client.patch(BUDGETS, "spares", status, "default", subresource="status")
        await world.settle(60)
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "b"

    play(scenario)


@pytest.mark.parametrize("taken", [False, True], ids=["", "ordinary pods come there"])
def test_what_others_left_is_kept_until_its_scheduler_asks_and_nobody_else_is_evicted(
    play: Play, taken: bool
) -> None:
    """The victim had the CPU as well: the scheduler did not propose the node."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        for name, node, level in (("low", "a", 0), ("second", "b", 1)):
            where: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node}, "priority": level}
            await world.add_pod(name, "one", containers=requesting(cpu=6), **where)
        await world.settle(5)
        await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu=6), schedulerName=AWAY)
        await world.settle(5)
        question = await world.question("urgent")
        meta = {node: {"Pods": [{"UID": "some"}], "NumPDBViolations": 0} for node in ("a", "b")}
        preempts = {"Pod": question["Pod"], "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        assert (await world.ask("preempt", preempts))["NodeNameToMetaVictims"] == {}
        await world.settle(5)
        assert evicted == ["low"]
        for scheduler in BOTH:
            spec = {"schedulerName": scheduler, "preemptionPolicy": "Never"}
            await world.add_pod(f"of-{scheduler}", "one", priority=5, **spec)
        if taken:
            await world.add_pod("plain", nodeName="a", priority=1, containers=requesting(cpu=6))
        await asyncio.sleep(300)
        assert [await world.node_of(f"of-{scheduler}") for scheduler in BOTH] == ["", ""]
        if taken:
            assert list((await world.ask("preempt", preempts))["NodeNameToMetaVictims"]) == ["a"]
        else:
            assert await asked(world, "a") == ["a"]
        assert evicted == ["low"]

    play(scenario)


@pytest.mark.parametrize("scheduler", BOTH)
def test_its_scheduler_evicts_nobody_where_what_is_free_is_kept_for_another(play: Play, scheduler: str) -> None:
    async def scenario(world: World) -> None:
        evicted = await victim_stays(world, schedulerName=scheduler)
        await world.add_pod("plain", nodeName="a", priority=0, containers=requesting(cpu=7))
        await world.settle(5)
        await world.add_pod("late", "one", priority=5, containers=requesting(cpu=4))
        await world.settle(60)
        assert evicted == ["low"]
        world.kubelets.start("a")
        await world.settle(60)
        assert await world.node_of("urgent") == "a"
        assert evicted == ["low"]

    play(scenario)


@pytest.mark.parametrize("priority", [5, 10])
@pytest.mark.parametrize("scheduler", BOTH)
@pytest.mark.parametrize("preemptor", BOTH)
def test_what_is_kept_goes_to_no_pod_of_lower_or_equal_priority_of_either_scheduler(
    play: Play, preemptor: str, scheduler: str, priority: int
) -> None:
    async def scenario(world: World) -> None:
        await victim_stays(world, schedulerName=preemptor)
        await world.add_pod("other", "one", priority=priority, schedulerName=scheduler)  # one device is free
        await world.settle(5)
        assert not await world.node_of("other")
        world.kubelets.start("a")
        await world.settle(60)
        assert await world.node_of("urgent") == "a"
        assert not await world.node_of("other")

    play(scenario)


@pytest.mark.parametrize("scheduler", BOTH)
def test_pods_of_either_scheduler_are_evicted(play: Play, scheduler: str) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("low", "one", schedulerName=scheduler)
        await world.settle(5)
        await world.add_pod("urgent", "one", priority=10)
        await world.settle(60)
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_nobody_is_evicted_on_nodes_that_its_scheduler_refuses_for_reasons_of_its_own(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1, b=1)
        await hold(world, high=20, low=0)
        await add_grump(world, await world.node_of("low"), priority=20)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await world.settle(700)
        assert evicted == []

    play(scenario)


def test_who_keeps_the_pod_away_is_evicted_for_what_it_holds(play: Play) -> None:
    """The scheduler refuses the node as long as that pod is there, and would evict it; but not for its claim."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await hold(world, low=0)
        await world.client.patch(PODS, "low", {"metadata": {"labels": {"app": "grump"}}}, "default")
        await world.settle(5)
        await world.add_pod("urgent", "one", priority=10, affinity=APART)
        await world.settle(60)
        assert evicted == ["low"]
        assert await world.node_of("urgent") == "a"

    play(scenario)


def test_who_is_let_in_elsewhere_meanwhile_has_no_more_pods_evicted(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, client=SlowEvictions(world.server.client()), a=2, b=2)
        await hold(world, high=20, higher=21, low=1, lower=0)
        other = {"a": "b", "b": "a"}[await world.node_of("low")]
        await world.add_pod("urgent", "two", priority=10)
        await asyncio.sleep(SlowEvictions.seconds * 2.5)  # asked what both evictions would do, and begun with one
        for name in ("high", "higher"):
            assert await world.node_of(name) == other
            await world.finish_pod(name)
        await world.settle(60)
        assert await world.node_of("urgent") == other
        assert len(set(evicted) & {"low", "lower"}) == 1

    play(scenario)


def test_what_is_kept_for_a_pod_whose_scheduler_never_binds_it_is_free_after_ten_minutes(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begun(world)
        assert await asked(world, "a") == []
        await world.settle(5)
        assert await asked(world, "a") == ["a"]
        await world.add_pod("late", "one", priority=5)
        await asyncio.sleep(KEPT_SECONDS - 60)
        assert not await world.node_of("late")
        await asyncio.sleep(120)
        assert await world.node_of("late") == "a"
        assert evicted == ["low"]

    play(scenario)


def test_a_preemptor_that_its_scheduler_can_never_bind_evicts_few(play: Play) -> None:
    """Its binds fail; whatever was evicted is made again."""

    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_pod("urgent", "one", priority=10, schedulerName=AWAY)
        for number in range(4 * 120):
            if not any(pod.metadata.name.startswith("low") for pod in (await world.client.list(PODS)).items):
                await world.add_pod(f"low-{number}", "one")
            await asyncio.sleep(30)
            await asked(world, "a")
        assert 1 <= sum(name.startswith("low") for name in evicted) <= 10

    play(scenario)


def test_a_pod_whose_class_is_gone_has_nothing_kept(play: Play) -> None:
    async def scenario(world: World) -> None:
        evicted = await begin(world, a=1)
        await world.add_class("other", preemption="LowerPriority")
        await world.add_template("others", "other")
        await hold(world, low=1)
        world.kubelets.stop("a")
        await world.add_pod("urgent", "others", priority=10)
        await world.settle(5)
        assert evicted == ["low"]
        await world.client.delete(CLASSES, "other")
        await world.add_pod("late", "one", priority=5, preemptionPolicy="Never")
        world.kubelets.start("a")
        await world.settle(60)
        assert await world.node_of("late") == "a"

    play(scenario)
