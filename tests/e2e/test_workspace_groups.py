"""Workspaces of a group on real nodes: used first at the same moment, and then by one pod together."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cluster.containers import execute
from tests.cluster.manifests import UNTIL_FINISHED, claim, pod, resource_class
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import offered, workspace_plugins

from parley.api import reasons
from parley.api.resources import CLAIMS, NODES, PODS
from parley.drivers.workspace import DISK, WorkspaceDriver
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

ROUNDS = int(os.environ.get("GROUP_ROUNDS", "3"))
TOLD = 30.0
"""Seconds: so soon a user knows that a pod can run nowhere."""
ZONE = "topology.kubernetes.io/zone"
KINDS = ("source", "cache")


@pytest.fixture
async def shelves(cluster: Cluster, team: Namespace, tmp_path: Path) -> AsyncIterator[str]:
    """A plugin on each node serves workspaces. Gives the name of a class whose claims are kept."""
    with workspace_plugins(cluster, tmp_path):
        for node in cluster.nodes:
            await offered(team.client, node.name, [DISK], WorkspaceDriver.name)
        yield f"shelf-{team.name}"


async def used_first_at_once(team: Namespace, class_name: str, turn: int, **parameters: str) -> list[str]:
    """Two claims, and a pod for each at the same moment. Returns the pods' nodes."""
    for kind in KINDS:
        await team.create(claim(f"{kind}-{turn}", class_name, size="1Mi", mountPath=f"/{kind}", **parameters))
    await team.create(*(pod(f"uses-{kind}-{turn}", claims={"it": f"{kind}-{turn}"}) for kind in KINDS))
    running = await asyncio.gather(*(team.runs(f"uses-{kind}-{turn}") for kind in KINDS))
    return [one.spec.node_name for one in running]


async def removed(team: Namespace, turn: int) -> None:
    pods = [f"uses-{kind}-{turn}" for kind in KINDS]
    await asyncio.gather(*(team.delete(PODS, name) for name in pods))
    await asyncio.gather(*(team.delete(CLAIMS, f"{kind}-{turn}") for kind in KINDS))


async def test_a_pod_that_uses_two_of_a_group_runs_where_both_are(
    team: Namespace, shelves: str, cluster: Cluster
) -> None:
    await team.create(
        resource_class(shelves, WorkspaceDriver.name, shareable=True, whenUnused={"keepSeconds": 600})
    )
    for turn in range(ROUNDS):
        nodes = await used_first_at_once(team, shelves, turn, group=f"run-{turn}")
        both = f"both-{turn}"
        named = {kind: f"{kind}-{turn}" for kind in KINDS}
        await team.create(pod(both, claims=named, script=UNTIL_FINISHED))
        running = await team.runs(both)
        assert {running.spec.node_name} == set(nodes)
        execute(cluster, team, both, "touch /source/a /cache/b")
        await team.delete(PODS, both)
        await removed(team, turn)


async def test_groups_may_be_kept_in_a_zone(team: Namespace, shelves: str, cluster: Cluster) -> None:
    kind = resource_class(
        shelves,
        WorkspaceDriver.name,
        shareable=True,
        whenUnused={"keepSeconds": 600},
        prefer="Spread",
        parameters={"topologyKey": ZONE},
    )
    await team.create(kind)
    try:
        for index, node in enumerate(cluster.nodes):
            await team.client.patch(NODES, node.name, {"metadata": {"labels": {ZONE: f"zone-{index}"}}})
        for turn in range(ROUNDS):
            assert len(set(await used_first_at_once(team, shelves, turn, group=f"run-{turn}"))) == 1
            await removed(team, turn)
    finally:
        for node in cluster.nodes:
            await team.client.patch(NODES, node.name, {"metadata": {"labels": {ZONE: None}}})


async def test_a_pod_whose_workspaces_are_apart_says_so(team: Namespace, shelves: str, cluster: Cluster) -> None:
    await team.create(
        resource_class(shelves, WorkspaceDriver.name, shareable=True, whenUnused={"keepSeconds": 600})
    )
    for kind, node in zip(KINDS, cluster.nodes, strict=True):
        where = {"kubernetes.io/hostname": node.name}
        await team.create(
            claim(f"{kind}-0", shelves, size="1Mi", mountPath=f"/{kind}"),
            pod(f"uses-{kind}-0", claims={"it": f"{kind}-0"}, nodeSelector=where),
        )
        await team.runs(f"uses-{kind}-0")
    await team.create(pod("both", claims={kind: f"{kind}-0" for kind in KINDS}))
    told = await team.scheduling(
        "both", lambda s: s.status.waiting_for == reasons.CONFLICTING_ALLOCATIONS, "is told why", within=TOLD
    )
    for kind, node in zip(KINDS, cluster.nodes, strict=True):
        assert f"claim {team.name}/{kind}-0 is allocated on node {node.name}" in told.status.message
    await team.delete(PODS, "both")
    await removed(team, 0)
