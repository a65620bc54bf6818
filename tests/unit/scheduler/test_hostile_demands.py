"""Pods that ask for too much at once, and nodes that speak for others: they get told, and the others go on."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from tests.support.containers import requesting
from tests.support.effort import calls, peak_bytes
from tests.unit.scheduler.reserving import NIGHT, begin, borrower, claim, task

from parley.api.names import RESERVATION_GATE
from parley.api.resources import PODS, RESOURCE_SLICES
from parley.api.selectors import node_selector
from parley.control.caches import kept
from parley.control.room import Requester, room_shortage, room_to_hold
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Listing
from parley.negotiation import waiting
from parley.negotiation.waiting import Topic, WaitingLines
from parley.scheduler import candidates
from parley.scheduler.queues import ROOM_SECONDS

Play = Callable[[Any], None]


@pytest.mark.scheduling_paths("native", "extender")
def test_a_pod_with_more_claims_than_are_judged_together_is_told_so(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        await world.add_pod("huge", *["one"] * 129)
        await world.add_pod("small", "one")
        await world.settle()
        message = (
            "pod default/huge has 129 claims of driver device.parley.dev, at most 128 are allowed: "
            "have each claim request more, or divide the work among several pods"
        )
        assert (await world.scheduling("huge")).status.message == message
        assert await world.events_on("huge") == [("ParametersInvalid", message)]
        assert await world.node_of("small") == "a"

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("kind", ["named", "generated"])
def test_a_pod_with_more_claims_than_are_evaluated_is_told_so(play: Play, kind: str) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        names = [f"c{n}" for n in range(300)]
        for name in names if kind == "named" else ():
            await world.add_claim(name)
        await world.add_pod("huge", *["one"] * 300 * (kind == "generated"), claims=names * (kind == "named"))
        await world.add_pod("small", "one")
        await world.settle()
        message = (
            "pod default/huge has 300 claims, at most 256 are allowed: "
            "have each claim request more, or divide the work among several pods"
        )
        assert (await world.scheduling("huge")).status.message == message
        assert await world.events_on("huge") == [("ParametersInvalid", message)]
        assert await world.node_of("small") == "a"

    play(scenario)


class Stools(TokensDriver):
    name = "stools.example.com"


class Tables(TokensDriver):
    name = "tables.example.com"


async def add_pools(world: Any) -> None:
    """Templates `stool` and `table`, of classes with enough for anybody, and a node."""
    await world.add_node("a")
    for kind in (Stools, Tables):
        name = kind.name.split("s.")[0]
        await world.add_class(name, driverName=kind.name, nodePart="None", parameters={"pool": 1000})
        await world.add_template(name, name)


@pytest.mark.scheduling_paths("native", "extender")
@pytest.mark.parametrize("embedded", [True, False])
def test_a_pod_with_more_claims_than_standalone_drivers_can_be_asked_about_is_told_so(
    play: Play, embedded: bool
) -> None:
    """No PodScheduling can hold them, so the drivers can't answer."""

    async def scenario(world: Any) -> None:
        await add_pools(world)
        world.start_parley(drivers=[Stools()] if embedded else [DeviceDriver()])
        for driver in [Tables()] if embedded else [Stools(), Tables()]:
            world.start_driver(driver)
        await world.settle()
        await world.add_pod("huge", *["stool"] * 65, *["table"] * 64)
        await world.add_pod("large", *["stool"] * 64, *["table"] * 64)
        await world.settle()
        message = (
            "pod default/huge has 129 claims, at most 128 are allowed if one of them is of a standalone driver: "
            "have each claim request more, or divide the work among several pods"
        )
        assert (await world.scheduling("huge")).status.message == message
        assert await world.events_on("huge") == [("ParametersInvalid", message)]
        assert await world.node_of("large") == "a"

    play(scenario)


def test_a_pod_with_more_claims_than_a_podscheduling_can_show_has_one(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await add_pools(world)
        world.start_parley(drivers=[Stools(), Tables()])
        await world.add_pod("huge", *["stool"] * 100, *["table"] * 100)
        await world.settle()
        assert await world.node_of("huge") == "a"
        shown = await world.scheduling("huge")
        assert (shown.spec.selected_node, len(shown.status.claims)) == ("a", 128)

    play(scenario)


@pytest.mark.parametrize("kind", ["named", "generated"])
def test_a_change_of_a_pod_with_very_many_claims_costs_little(play: Play, kind: str) -> None:
    """The API server limits neither how many claims a pod names, nor how often its status is changed."""
    source = {"resourceClaimName": "c{}"} if kind == "named" else {"resourceClaimTemplateName": "t"}
    entries = [{"name": f"e{n}", **{k: v.format(n) for k, v in source.items()}} for n in range(12_000)]
    statuses = (
        [{"name": f"e{n}", "resourceClaimName": f"p-{n}"} for n in range(12_000)] if kind == "generated" else []
    )

    def state(version: int) -> Any:
        meta = {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": str(version)}
        conditions = [{"type": "PodScheduled", "status": "False", "message": str(version)}]
        status = {"phase": "Pending", "resourceClaimStatuses": statuses, "conditions": conditions}
        return {"metadata": meta, "spec": {"resourceClaims": entries}, "status": status}

    async def scenario(world: Any) -> None:
        world.start_parley()
        await world.settle()
        pods = next(cache for cache in world.controller.cluster.caches if cache.resource == PODS)
        read = PODS.read_through(kept.pod)
        shown = [read.decode(orjson.dumps(state(version))) for version in range(1, 3)]
        for one in shown:
            pods.replace(Listing((one,), "1"))
        again = read.decode(orjson.dumps(state(3)))
        assert calls(lambda: pods.replace(Listing((again,), "1"))) < 5_000

    play(scenario)


def test_a_pod_that_asks_more_of_its_node_than_is_compared_is_told_so(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley()
        await world.add_pod(
            "huge", "one", tolerations=[{"key": f"a{n}", "operator": "Exists"} for n in range(257)]
        )
        await world.settle()
        assert (
            "is not considered: the pod has 257 tolerations, node selector terms and requirements, and Parley "
            "evaluates at most 256 with a node"
        ) in (await world.scheduling("huge")).status.message
        await world.add_pod("small", "one")
        await world.settle()
        assert await world.node_of("small") == "a"

    play(scenario)


def test_a_node_that_claims_another_nodes_pool_harms_nobody(play: Play) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_node("b")
        await world.add_class()
        await world.add_template()
        world.start_parley()
        pool = {"name": "a", "generation": 7}
        spec = {"driver": DeviceDriver.name, "nodeName": "b", "pool": pool, "devices": [{"name": "gpu-0"}]}
        await world.create(RESOURCE_SLICES, {"metadata": {"name": "false"}, "spec": spec})
        await world.settle()
        await world.client.delete(RESOURCE_SLICES, "false")
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"
        await world.plugin_gone("a")
        await world.settle()

    play(scenario)


@pytest.mark.parametrize("quantity", ["0", "1"])
def test_resource_names_of_pods_that_are_gone_are_forgotten(play: Play, quantity: str) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley()
        await world.add_pod("daemon", nodeName="a")
        await world.settle()
        for turn in range(3):
            names = {f"x.y/{turn}-{i}": quantity for i in range(100)}
            await world.add_pod("evil", containers=requesting(**names), nodeName="a")
            await world.settle()
            assert len(world.controller.cluster.usage.used("a")) == (0 if quantity == "0" else 100)
            await world.force_delete("evil")
            await world.settle()
        usage = world.controller.cluster.usage
        assert (usage.pods("a"), dict(usage.used("a")), dict(usage.by_priority("a")[0].amounts)) == (1, {}, {})

    play(scenario)


def test_what_others_cost_where_room_is_reserved_does_not_grow_with_the_resources_that_a_user_names(
    play: Play,
) -> None:
    async def scenario(world: Any) -> None:
        await begin(world, "a")
        await claim(world, "build", {"cpu": "6"})
        assert await task(world, "clone", "build") == "a"
        names = {f"x.y/{i}": "1" for i in range(4000)}
        await world.add_pod("evil", claims=["build"], containers=requesting(cpu="1", **names), nodeName="a")
        await world.settle()
        state = world.controller._base.state
        other = Requester("default", "other", {"cpu": 3000})
        assert "4 cpu are reserved" in room_shortage(state, "a", other)
        assert peak_bytes(lambda: room_shortage(state, "a", other)) < 20_000, (
            "a copy of all names takes many times as much"
        )
        (left,) = room_to_hold(state, "a", lambda _: True).amounts.values()
        assert left == {"cpu": 4000}
        assert peak_bytes(lambda: room_to_hold(state, "a", lambda _: True)) < 20_000

    play(scenario)


@pytest.mark.parametrize("kind", ["gated", "waiting", "ended"])
def test_what_others_cost_where_room_is_reserved_does_not_grow_with_the_pods_that_name_the_claims(
    play: Play, kind: str
) -> None:
    """A pod that its owner gates costs its owner nothing, and may name hundreds of claims."""

    async def scenario(world: Any) -> None:
        await begin(world, "a")
        names = [f"build-{i}" for i in range(10)]
        for name in names:
            await claim(world, name, {"cpu": "100m"}, mountPath=f"/{name}")
        assert await task(world, "clone", *names, cpu="100m") == "a"
        state = world.controller._base.state
        other = Requester("default", "other", {"cpu": 8000})
        before = (
            calls(lambda: room_shortage(state, "a", other)),
            calls(lambda: room_to_hold(state, "a", lambda _: True)),
        )
        spec: dict[str, Any] = {
            "gated": {"schedulingGates": [{"name": "x.y/z"}]},
            "waiting": {"nodeSelector": {"no": "where"}, "schedulerName": "nobody"},
            "ended": {"nodeName": "a"},
        }
        for i in range(100):
            await world.add_pod(f"evil-{i}", claims=names, **spec[kind])
            if kind == "ended":
                await world.finish_pod(f"evil-{i}")
        await world.settle()
        assert "cpu" in room_shortage(state, "a", other)
        assert calls(lambda: room_shortage(state, "a", other)) < before[0] * 1.2
        if kind != "waiting":  # these may come for the room
            assert calls(lambda: room_to_hold(state, "a", lambda _: True)) < before[1] * 1.2

    play(scenario)


def test_what_others_cost_where_room_yields_does_not_grow_with_the_claims_of_borrowers_times_those_that_yield(
    play: Play,
) -> None:
    async def scenario(world: Any) -> None:
        await begin(world, "a", yields_to=[NIGHT])
        names = [f"build-{i}" for i in range(30)]
        for name in names:
            await claim(world, name, {"cpu": "100m"}, mountPath=f"/{name}")
        assert await task(world, "clone", *names, cpu="100m") == "a"
        state = world.controller._base.state
        other = Requester("default", "other", {"cpu": 8000})
        looks = [lambda: room_shortage(state, "a", other), lambda: room_to_hold(state, "a", lambda _: True)]
        before = [calls(look) for look in looks]
        many = [f"night-{i}" for i in range(100)]
        for name in many:
            await world.add_claim(name, NIGHT, size="1Mi", mountPath=f"/{name}")
        assert await task(world, "borrower", *many, cpu="10m") == "a"
        assert "cpu" in room_shortage(state, "a", other)
        assert all(calls(look) < 2 * first for look, first in zip(looks, before, strict=True))

    play(scenario)


BUILDS = [f"build-{i}" for i in range(10)]


async def yielding(world: Any) -> None:
    """The claims `BUILDS` yield their room on the node."""
    await begin(world, "a", yields_to=[NIGHT])
    for name in BUILDS:
        await claim(world, name, {"cpu": "500m"}, mountPath=f"/{name}")
    assert await task(world, "clone", *BUILDS, cpu="500m") == "a"


async def users_wait(world: Any, *numbers: int) -> None:
    """Pods that name all of these claims, and that no scheduler places."""
    nowhere = {"nodeSelector": {"no": "where"}, "schedulerName": "nobody"}
    for number in numbers:
        await world.add_pod(f"evil-{number}", claims=BUILDS, containers=requesting(cpu="10m"), **nowhere)
    await world.settle()


def test_what_a_borrower_costs_does_not_grow_with_the_pods_that_wait_for_the_claims(play: Play) -> None:
    """A tenant may have thousands of pods that name hundreds of its claims."""

    async def scenario(world: Any) -> None:
        await yielding(world)
        await users_wait(world, *range(20))
        requester, state = (
            Requester("other", "borrower", {"cpu": 7000}, classes=frozenset([NIGHT])),
            world.controller.state,
        )
        assert "left: 1800m cpu are reserved" in room_shortage(state, "a", requester)
        few = calls(lambda: room_shortage(state, "a", requester))
        await users_wait(world, *range(20, 60))
        assert calls(lambda: room_shortage(state, "a", requester)) < 1.2 * few

    play(scenario)


def test_a_user_that_does_not_wait_any_more_has_each_borrower_asked_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def counted(state: Any, node: str, *args: Any) -> str:
        looks.append(node)
        return room_shortage(state, node, *args)

    async def scenario(world: Any) -> None:
        await yielding(world)
        await users_wait(world, *range(5))
        for i in range(3):
            assert await borrower(world, f"borrower-{i}", cpu=f"{7480 + i}m") == ""
        monkeypatch.setattr(candidates, "room_shortage", counted)
        await world.client.delete(PODS, "evil-0", "default")
        await asyncio.sleep(1)
        assert 0 < len(looks) <= 2 * 3

    play(scenario)


def test_few_pods_of_a_namespace_are_asked_about_a_node_where_very_many_claims_reserve_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look compares all of these, and nobody else is served meanwhile. The other pods look a minute later."""
    looks: list[str] = []

    def counted(state: Any, node: str, *args: Any) -> str:
        looks.append(node)
        return room_shortage(state, node, *args)

    async def scenario(world: Any) -> None:
        monkeypatch.setattr(waiting, "MOST_COMPARED", 5 * len(BUILDS))
        await yielding(world)
        assert await task(world, "plain", cpu="10m") == "a"
        for i in range(20):
            await claim(world, f"work-{i}", mountPath=f"/work-{i}")
            pod = {"containers": requesting(cpu=f"{4000 + i}m")}
            await world.add_pod(f"work-{i}", claims=[f"work-{i}"], **pod)
        await world.settle()
        monkeypatch.setattr(candidates, "room_shortage", counted)
        await world.finish_pod("plain")
        await asyncio.sleep(1)
        assert len(looks) == 5

    play(scenario)


def test_whose_turn_it_is_with_a_claim_is_found_without_those_that_wait_for_something_else(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may have a thousand pods that name a hundred claims, each with a line of its own."""
    lines: list[int] = []
    heads = WaitingLines[Any].heads

    def counted(self: WaitingLines[Any], *topics: Topic) -> list[Any]:
        found = heads(self, *topics)
        lines.append(len(found))
        return found

    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=10)
        await world.add_class()
        await world.add_template("too-many", count=20)
        world.start_parley()
        names = [f"c{i}" for i in range(5)]
        for name in names:
            await world.add_claim(name)
        for i in range(20):
            await world.add_pod(f"evil-{i}", "too-many", claims=names, containers=requesting(cpu=f"{i + 1}m"))
        await world.settle()
        monkeypatch.setattr(WaitingLines, "heads", counted)
        await world.client.patch(PODS, "evil-7", {"metadata": {"labels": {"changed": "yes"}}}, "default")
        await asyncio.sleep(1)
        assert lines == [0] * len(names)

    play(scenario)


@pytest.mark.parametrize("schedulers", [(), ("default-scheduler",)], ids=["off", "on"])
def test_a_tenants_pod_that_looks_like_a_reservation_pod_has_no_node_looked_at(
    play: Play, schedulers: tuple[str, ...]
) -> None:
    async def scenario(world: Any) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley(reservation_schedulers=schedulers)
        await asyncio.sleep(1)
        nodes = ["a", *(f"n{i}" for i in range(1000))]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node_selector(nodes)}}
        gated = {"schedulingGates": [{"name": RESERVATION_GATE}], "affinity": affinity}
        await world.add_pod("evil", claims=["nothing"], **gated)
        await looked_at_no_room(world)
        await world.client.patch(PODS, "evil", {"metadata": {"labels": {"changed": "yes"}}}, "default")
        await looked_at_no_room(world)
        await world.delete_pod("evil")
        await looked_at_no_room(world)

    play(scenario)


async def looked_at_no_room(world: Any) -> None:
    """By the time when a change is known, and is not looked at yet, and when that is over."""
    queue = world.controller._base.queues.reservations
    await asyncio.sleep(ROOM_SECONDS / 2)
    assert queue.statistics().delayed == 0
    await asyncio.sleep(1)
