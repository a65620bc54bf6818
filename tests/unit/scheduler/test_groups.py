"""Workspaces of a group are on one node, whoever asks first, and pods that wait for a group are not forgotten."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, SECOND_SCHEDULER, World

from parley.api import reasons
from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import CLAIMS, CLASSES, NODES, PODS, RESOURCE_SLICES
from parley.drivers.workspace import DISK, WorkspaceDriver

Play = Callable[[Callable[[World], Any]], None]

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def begin(world: World, *nodes: str, size: str = "10Gi") -> None:
    """Nodes with disks, and the shareable class `workspace`, whose claims are kept for an hour."""
    for node in nodes:
        await world.add_node(node)
        device = {"name": DISK, "capacity": {"size": {"value": size}}}
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": WorkspaceDriver.name, "nodeName": node, "pool": pool, "devices": [device]}
        metadata = {"name": f"{node}-disk", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}}
        await world.create(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})
    body = {"driverName": WorkspaceDriver.name, "shareable": True, "whenUnused": {"keepSeconds": 3600}}
    await world.create(CLASSES, {"metadata": {"name": "workspace"}, **body})
    world.start_parley(drivers=[WorkspaceDriver()])


async def claim(world: World, name: str, namespace: str = NAMESPACE, **parameters: Any) -> None:
    body = {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {"name": name},
        "spec": {"resourceClassName": "workspace", "parameters": parameters},
    }
    await world.client.create(CLAIMS, body, namespace)


@pytest.mark.parametrize("group", ["build", None])
def test_two_claims_that_are_used_first_at_the_same_moment_are_together_if_they_are_a_group(
    play: Play, group: str | None
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b", "c", "d")
        rounds, apart = 20, 0
        for i in range(rounds):
            names = [f"{kind}-{i}" for kind in ("source", "cache")]
            for name in names:
                await claim(world, name, size="1Mi", **({"group": f"{group}-{i}"} if group else {}))
            await asyncio.gather(*(world.add_pod(f"uses-{name}", claims=[name]) for name in names))
            await world.settle()
            apart += len({await world.node_of(f"uses-{name}") for name in names}) > 1
        assert (apart > 0) is (group is None)

    play(scenario)


def test_a_pod_that_waits_for_its_group_goes_elsewhere_when_the_last_member_is_gone(play: Play) -> None:
    """Also if the node of the group is nothing for the pod: what is freed there changes the answers elsewhere."""

    async def scenario(world: World) -> None:
        await begin(world, "a", "b", size="2Gi")
        await claim(world, "old", size="2Gi", group="build")
        await claim(world, "new", size="1Gi", group="build")
        await world.add_pod("first", claims=["old"])
        await world.settle()
        node = await world.node_of("first")
        await world.finish_pod("first")
        await world.client.patch(NODES, node, {"spec": {"unschedulable": True}})
        await world.settle()
        await world.add_pod("second", claims=["new"])
        await world.settle()
        assert f"group build is on node {node}" in (await world.scheduling("second")).status.message
        await world.client.delete(CLAIMS, "old", NAMESPACE)
        await asyncio.sleep(20)
        assert await world.node_of("second") == ({"a", "b"} - {node}).pop()

    play(scenario)


def test_a_group_of_another_namespace_does_not_hold_up_who_asks_for_the_same(play: Play) -> None:
    """Equal parameters, another group: the pod is not behind the other namespace's in a line."""

    async def scenario(world: World) -> None:
        await begin(world, "a", "b", size="2Gi")
        await claim(world, "full", size="2Gi", group="build")
        await claim(world, "behind", size="2Gi", group="build")
        await world.add_pod("first", claims=["full"], nodeName="a")
        await world.settle()
        await claim(world, "elsewhere", size="1Gi")
        await world.add_pod("on-b", claims=["elsewhere"], nodeName="b")
        await world.settle()
        await world.add_pod("waits-for-a", claims=["behind"])
        await world.settle()
        await claim(world, "mine", "other", size="2Gi", group="build")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other"},
            "spec": {
                "resourceClaims": [{"name": "work", "resourceClaimName": "mine"}],
                "containers": [{"name": "main", "image": "none"}],
                **({"schedulerName": SECOND_SCHEDULER} if world.scheduling_path == "extender" else {}),
            },
        }
        await world.client.create(PODS, pod, "other")
        await world.settle()
        await world.client.delete(CLAIMS, "elsewhere", NAMESPACE)
        await world.finish_pod("on-b")
        await asyncio.sleep(20)
        assert await world.node_of("waits-for-a") == ""
        assert (await world.client.get(PODS, "other", "other")).spec.node_name == "b"

    play(scenario)


def test_a_pod_whose_claims_are_apart_is_told_which_and_where(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "a", "b")
        for name, node in (("source", "a"), ("cache", "b")):
            await claim(world, name, mountPath=f"/{name}")
            await world.add_pod(f"on-{node}", claims=[name], nodeName=node)
        await world.settle()
        await world.add_pod("both", claims=["source", "cache"])
        await asyncio.sleep(5)
        status = (await world.scheduling("both")).status
        assert status.waiting_for == reasons.CONFLICTING_ALLOCATIONS
        assert status.message == (
            "no node has all claims of the pod: claim default/source is allocated on node a; "
            "claim default/cache is allocated on node b. Remedy: delete those on one of the nodes to start over"
        )
        await world.finish_pod("on-b")
        await world.client.delete(CLAIMS, "cache", NAMESPACE)
        await world.settle()
        await claim(world, "cache", mountPath="/cache")
        await world.settle()
        assert await world.node_of("both") == "a"

    play(scenario)
