"""Pods that wait are looked at again when something changed that may help them, and left in peace otherwise."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.disks import Disks
from tests.unit.scheduler.grump import APART, add_grump

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, NODES, TEMPLATES, Resource
from parley.control.claims import gathering
from parley.control.claims.podclaims import PodClaim
from parley.control.state import State
from parley.drivers.device import DeviceDriver
from parley.drivers.device.driver import DeviceRequest
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call
from parley.negotiation.waiting import UP_TO_DATE_SECONDS
from parley.sdk import Answer

Play = Callable[[Any], None]


class Asked(DeviceDriver):
    """Counts how often it was asked for the pods of each name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def viable(self, request: DeviceRequest, nodes: Sequence[str]) -> Mapping[str, Answer]:
        self.count[request.pod.name] += 1
        return super().viable(request, nodes)


class Pools(TokensDriver):
    """Counts how often it was asked about all nodes for the pods of each name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        self.count[request.pod.name] += len(nodes) > 1
        return super().viable(request, nodes)


async def two_nodes(world: Any) -> Asked:
    driver = Asked()
    for node in ("a", "b"):
        await world.add_node(node, devices=2)
    await world.add_class()
    await world.add_template()
    await world.add_template("two", count=2)
    await world.add_template("other", model="h100")
    world.start_parley(drivers=[driver])
    return driver


def test_a_freed_device_wakes_who_may_have_it_and_nobody_else(play: Play) -> None:
    async def scenario(world: Any) -> None:
        driver = await two_nodes(world)
        for name in ("p", "q", "r", "s"):
            await world.add_pod(name, "one")
        await world.settle()
        await world.add_pod("one-more", "one")
        await world.add_pod("two-more", "two")
        await world.add_pod("of-another-model", "other")
        await world.settle()
        before = Counter(driver.count)
        node = await world.node_of("p")
        await world.delete_pod("p")
        await asyncio.sleep(5)
        assert await world.node_of("one-more") == node
        assert driver.count["of-another-model"] == before["of-another-model"]
        assert driver.count["two-more"] == before["two-more"]

    play(scenario)


def test_a_freed_token_of_all_nodes_wakes_who_may_have_it_and_nobody_else(play: Play) -> None:
    async def scenario(world: Any) -> None:
        driver = Pools()
        await world.add_node("a")
        await world.add_node("b")
        await world.add_class("seats", driverName=driver.name, nodePart="None", parameters={"pool": 6})
        for count in (2, 3, 4, 5, 6):
            await world.add_template(f"of-{count}", "seats", count=count)
        world.start_parley(drivers=[driver])
        for name in ("p", "q", "r"):
            await world.add_pod(name, "of-2")
        await world.settle()
        for count in (2, 3, 4, 5, 6):
            await world.add_pod(f"wants-{count}", f"of-{count}")
        await world.settle()
        before = Counter(driver.count)
        await world.delete_pod("p")
        await asyncio.sleep(5)
        assert await world.node_of("wants-2")
        others = [f"wants-{count}" for count in (3, 4, 5, 6)]
        assert [driver.count[name] - before[name] for name in others] == [0, 0, 0, 0]
        await world.delete_pod("q")
        await world.delete_pod("r")
        await asyncio.sleep(5)
        assert await world.node_of("wants-3")

    play(scenario)


def test_devices_that_come_wake_who_may_have_them_and_nobody_else(play: Play) -> None:
    async def scenario(world: Any) -> None:
        driver = await two_nodes(world)
        for name in ("p", "q", "r", "s"):
            await world.add_pod(name, "one")
        await world.add_pod("of-another-model", "other")
        await world.add_pod("two-more", "two")
        await world.settle()
        before = Counter(driver.count)
        await world.add_node("c", devices=1)
        await asyncio.sleep(5)
        assert driver.count == before
        await world.add_node("d", devices=2)
        await asyncio.sleep(5)
        assert await world.node_of("two-more") == "d"
        assert driver.count["of-another-model"] == before["of-another-model"]

    play(scenario)


def test_a_pod_without_claims_that_ends_wakes_those_who_lack_what_it_used(play: Play) -> None:
    async def scenario(world: Any) -> None:
        driver = await two_nodes(world)
        await world.add_pod("hog-a", nodeName="a", containers=[container(cpu="6")])
        await world.add_pod("hog-b", nodeName="b", containers=[container(cpu="6")])
        await world.settle()
        await world.add_pod("middling", "one", containers=[container(cpu="4")])
        await world.add_pod("huge", "one", containers=[container(cpu="9")])
        await world.add_pod("of-another-model", "other", containers=[container(cpu="1")])
        await world.settle()
        before = Counter(driver.count)
        await world.delete_pod("hog-a")
        await asyncio.sleep(5)
        assert await world.node_of("middling") == "a"
        assert driver.count["huge"] == before["huge"]
        assert driver.count["of-another-model"] == before["of-another-model"]
        await world.client.patch(NODES, "b", {"status": {"allocatable": {"cpu": "20"}}}, subresource="status")
        await asyncio.sleep(5)
        assert await world.node_of("huge") == "b"

    play(scenario)


def test_a_pod_that_ends_wakes_those_of_standalone_drivers_only_where_they_fit_then(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may have thousands that fit nowhere, each in a line of its own."""

    async def scenario(world: Any) -> None:
        await world.add_node("a")
        await world.add_class("disk", driverName=Disks.name, nodePart="None")
        await world.add_template("one", "disk")
        world.start_parley()
        world.start_driver(Disks(["a"]))
        await world.add_pod("hog", containers=[container(cpu="6")])
        await world.settle()
        await world.add_pod("middling", "one", containers=[container(cpu="4")])
        await world.add_pod("huge", "one", containers=[container(cpu="9")])
        await world.settle()
        found = looks(monkeypatch)
        await world.delete_pod("hog")
        await asyncio.sleep(5)
        assert await world.node_of("middling") == "a"
        assert found["huge"] == 0
        await world.client.patch(NODES, "a", {"status": {"allocatable": {"cpu": "20"}}}, subresource="status")
        await asyncio.sleep(5)
        assert found["huge"]

    play(scenario)


def test_pods_that_end_have_what_the_scheduler_refused_offered_again_once_a_minute_in_the_end(
    play: Play,
) -> None:
    """In a large cluster some pod ends every second, and each offer takes a handful of writes."""

    async def scenario(world: Any) -> None:
        offers: Counter[str] = Counter()

        def count(call: Call) -> None:
            if call.writes and call.resource == BUILTIN_CLAIMS:
                offers[call.resource.plural] += 1

        await world.add_node("a", devices=1)
        await world.add_node("b")
        await add_grump(world, "a")
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), before=count))
        await world.add_pod("apart", "one", affinity=APART)
        for number in range(600):
            await world.add_pod(f"short-{number}", nodeName="b")
            await asyncio.sleep(1)
            await world.force_delete(f"short-{number}")
        assert offers.total() < 20
        await world.force_delete("grump-a")
        await asyncio.sleep(60 + 15)
        assert await world.node_of("apart") == "a"

    play(scenario)


def test_what_a_pod_is_told_about_nodes_comes_up_to_date_after_a_while(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await two_nodes(world)
        for name in ("p", "q", "r", "s"):
            await world.add_pod(name, "one")
        await world.settle()
        await world.add_pod("two-more", "two")
        await world.settle()
        node = await world.node_of("p")
        assert "0 of 2 devices free, 2 wanted" in (await world.scheduling("two-more")).status.message
        await world.delete_pod("p")
        await asyncio.sleep(UP_TO_DATE_SECONDS + 5)
        message = (await world.scheduling("two-more")).status.message
        assert f"node {node}: claim gpu-0: 1 of 2 devices free, 2 wanted" in message

    play(scenario)


def test_what_a_pod_is_told_comes_up_to_date_also_if_it_was_looked_at_for_something_else_meanwhile(
    play: Play,
) -> None:
    """It looks every two seconds whether a pod is bound that it may have evicted then."""

    async def scenario(world: Any) -> None:
        for node in ("a", "b"):
            await world.add_node(node, devices=1)
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
        await world.add_class(preemption="LowerPriority")
        await world.add_template()
        world.start_parley()
        await world.add_pod("low", "one", schedulerName="asleep")
        await world.settle(5)
        await world.add_pod("waits", "one", priority=10)
        await asyncio.sleep(5)
        await world.client.patch(NODES, "b", {"metadata": {"labels": {"example.com/any": "yes"}}})
        await world.add_pod("high", "one", priority=20)
        await asyncio.sleep(5)
        await world.force_delete("low")
        await asyncio.sleep(5)
        assert await world.node_of("high") == "a"
        assert "node b: cordoned" in (await world.scheduling("waits")).status.message
        taints = [{"key": "example.com/broken", "effect": "NoSchedule"}]
        await world.client.patch(NODES, "b", {"spec": {"unschedulable": None, "taints": taints}})
        await asyncio.sleep(UP_TO_DATE_SECONDS + 5)
        assert "node b: taint example.com/broken" in (await world.scheduling("waits")).status.message

    play(scenario)


def test_where_many_pods_wait_for_different_things_they_come_up_to_date_one_after_the_other(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change on any node would have all of them look at all nodes within a minute, for nothing but a message."""
    monkeypatch.setattr("parley.scheduler.pods.REFRESHED_NODES", 0.2)

    async def scenario(world: Any) -> None:
        driver = await two_nodes(world)  # so there are ten seconds between two looks
        for number in range(12):
            await world.add_template(f"wish-{number}", model=f"none-such-{number}")
            await world.add_pod(f"waits-{number}", f"wish-{number}")
        await world.settle()
        driver.count.clear()
        for minute in range(2):
            await world.client.patch(NODES, "a", {"metadata": {"labels": {"minute": str(minute)}}})
            await asyncio.sleep(UP_TO_DATE_SECONDS + 5)
        assert 0 < driver.count.total() <= 9
        await asyncio.sleep(120)
        assert len(driver.count) == 12

    play(scenario)


def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the pod of each name was looked at."""
    found: Counter[str] = Counter()

    def gather(state: State, pod: Pod) -> tuple[PodClaim, ...]:
        found[pod.metadata.name] += 1
        return gathering.gather(state, pod)

    monkeypatch.setattr("parley.scheduler.reconciler.gather", gather)
    return found


async def annotate(world: Any, resource: Resource[Any], name: str) -> None:
    """As whoever may edit it can, as often as they like."""
    changed = str(world.server.resource_version)
    marks = {"annotations": {"example.com/changed": changed}, "labels": {"example.com/changed": changed}}
    await world.client.patch(resource, name, {"metadata": marks}, "default")
    await asyncio.sleep(5)


@pytest.mark.parametrize("resource", [CLAIMS, BUILTIN_CLAIMS], ids=["claim", "built-in"])
def test_labels_and_annotations_of_a_claim_have_no_pod_looked_at(
    play: Play, monkeypatch: pytest.MonkeyPatch, resource: Resource[Any]
) -> None:
    """Hundreds of pods may use or wait for it, and each of these looks may ask drivers about all nodes."""
    found = looks(monkeypatch)

    async def scenario(world: Any) -> None:
        await two_nodes(world)
        await world.add_class("shared", shareable=True)
        await world.add_claim("common", "shared")
        await world.add_claim("too-much", "shared", count=9)
        for name in ("user", "another"):
            await world.add_pod(name, claims=["common"])
        for cpu in ("1", "2"):
            await world.add_pod(f"waits-{cpu}", claims=["too-much"], containers=[container(cpu=cpu)])
        await world.settle()
        assert await world.node_of("user") == await world.node_of("another") != ""
        await asyncio.sleep(120)
        found.clear()
        await annotate(world, resource, "common")
        await annotate(world, resource, "too-much")
        assert not found
        await world.client.delete(CLAIMS, "too-much", "default")
        await asyncio.sleep(5)
        assert found.keys() == {"waits-1", "waits-2"}

    play(scenario)


def test_labels_and_annotations_of_a_template_have_no_pod_looked_at(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pod of its namespace whose claim is missing may wait for a template that makes claims on demand."""
    found = looks(monkeypatch)

    async def scenario(world: Any) -> None:
        await two_nodes(world)
        spec = {"spec": {"resourceClassName": "gpu"}, "sharedBy": {"podLabel": "example.com/run"}}
        await world.create(TEMPLATES, {"metadata": {"name": "src", "namespace": "default"}, "spec": spec})
        for number in range(3):
            await world.add_pod(f"waits-{number}", claims=[f"missing-{number}"])
        await world.settle()
        found.clear()
        await annotate(world, TEMPLATES, "src")
        assert not found
        await world.client.delete(TEMPLATES, "src", "default")
        await asyncio.sleep(5)
        assert len(found) == 3

    play(scenario)


def test_a_pod_that_comes_and_goes_has_none_looked_at_that_wait_for_other_claims(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim is missing, and so are theirs, each for another pod: nobody had a turn that is another's now."""
    found = looks(monkeypatch)

    async def scenario(world: Any) -> None:
        await two_nodes(world)
        for number in range(3):
            await world.add_pod(f"waits-{number}", claims=[f"missing-{number}"])
        await world.settle()
        found.clear()
        await world.add_pod("goes", claims=["missing"])
        await world.settle()
        await world.delete_pod("goes")
        await asyncio.sleep(5)
        assert found.keys() == {"goes"}

    play(scenario)


def container(**requests: str) -> dict[str, Any]:
    return {"name": "main", "image": "none", "resources": {"requests": requests}}
