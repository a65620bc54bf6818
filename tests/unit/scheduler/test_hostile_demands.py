"""Pods that ask for too much at once, and nodes that speak for others: they get told, and the others go on."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from tests.support.containers import requesting
from tests.support.effort import calls

from parley.api.resources import PODS, RESOURCE_SLICES
from parley.control.caches import kept
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Listing
from parley.negotiation.waiting import Topic, WaitingLines

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
