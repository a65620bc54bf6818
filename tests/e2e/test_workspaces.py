"""Workspaces on real nodes: tasks that follow each other find each other's files; they go with the claim."""

import asyncio
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cluster.containers import execute, touch
from tests.cluster.manifests import UNTIL_FINISHED, claim, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import offered, workspace_plugins
from tests.cluster.watching import until

from parley.api import reasons
from parley.api.models import ResourceClaim
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIM_RELEASES, CLAIMS, NODES, PODS
from parley.drivers.workspace import DISK, WorkspaceDriver
from parley.kube.client import Client
from parley_devcluster import Cluster
from parley_devcluster.parley import CONTROLLER

pytestmark = pytest.mark.cluster

WITHOUT_USERS = 5.0
SOON = 10.0
"""Seconds: so soon a task's user has to know why it waits."""
KEPT = 600
BRIEFLY = 15
"""Seconds without users after which a workspace goes."""
TOLD = 120.0
"""Seconds: so soon somebody knows of a workspace that is too large; it is measured once a minute."""


@pytest.fixture
def roots(cluster: Cluster, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """The directory of each node's workspaces; a plugin serves it."""
    with workspace_plugins(cluster, tmp_path):
        yield {node.name: tmp_path / node.name / "root" for node in cluster.nodes}


async def begin(cluster: Cluster, team: Namespace, **class_: object) -> None:
    for node in cluster.nodes:
        await offered(team.client, node.name, [DISK], WorkspaceDriver.name)
    name = f"shelf-{team.name}"
    kind = resource_class(name, WorkspaceDriver.name, shareable=True, **class_)
    await team.create(kind, claim("build", name, size="1Gi"))


async def task(cluster: Cluster, team: Namespace, name: str, script: str) -> list[str]:
    """A pod with the workspace runs the script, and ends. Returns its node, the directory's inode and the script's
    lines."""
    await team.create(pod(name, claims={"work": "build"}, script=UNTIL_FINISHED))
    running = await team.runs(name)
    look = "cd $WORKSPACE_BUILD_PATH && stat -c %i . && "
    lines = execute(cluster, team, name, look + script).splitlines()
    touch(cluster, team, name)
    await team.pod(name, lambda one: one.status.phase == "Succeeded", "is done")
    return [running.spec.node_name, *lines]


def left(roots: dict[str, Path]) -> list[str]:
    """The names of all workspaces on all nodes."""
    return [path.name for root in roots.values() for path in (root / "data").glob("*")]


async def test_tasks_that_follow_each_other_have_one_directory_and_it_goes_with_the_claim(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    await begin(cluster, team, whenUnused={"keepSeconds": KEPT})
    node, inode, _ = await task(cluster, team, "clone", "echo source > file && cat file")
    unused = await team.parley_claim("build", lambda c: c.status.kept_until is not None, "is kept")
    assert unused.status.reserved_for == ()
    await asyncio.sleep(WITHOUT_USERS)
    builds = [f"build-{i}" for i in range(4)]
    found = await asyncio.gather(
        *(task(cluster, team, name, f"cat file && echo {name} > {name}") for name in builds)
    )
    assert found == [[node, inode, "source"]] * 4
    await asyncio.sleep(WITHOUT_USERS)
    assert await task(cluster, team, "report", "ls") == [node, inode, *builds, "file"]
    (directory,) = left(roots)
    assert directory.startswith(unused.metadata.uid)

    await team.delete(CLAIMS, "build")
    assert left(roots) == []
    assert (await team.client.list(CLAIM_RELEASES)).items == ()
    assert all(list((root / "trash").glob("*")) == [] for root in roots.values() if root.exists())


async def test_without_keeping_it_the_next_task_finds_nothing(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    await begin(cluster, team)
    await task(cluster, team, "clone", "echo source > file")
    free = await team.parley_claim("build", lambda c: c.status.allocation is None, "is free")
    assert free.status.kept_until is None
    assert left(roots) == []
    assert len(await task(cluster, team, "late", "ls")) == 2
    await team.delete(CLAIMS, "build")
    assert left(roots) == []


@pytest.mark.parametrize("is_away", [False, True])
async def test_it_goes_at_its_deadline_or_when_the_controller_is_back(
    cluster: Cluster, team: Namespace, roots: dict[str, Path], is_away: bool
) -> None:
    await begin(cluster, team, whenUnused={"keepSeconds": BRIEFLY})
    await task(cluster, team, "clone", "echo source > file")
    await team.parley_claim("build", lambda c: c.status.kept_until is not None, "is kept")
    if is_away:
        cluster.component(CONTROLLER).kill()
    await asyncio.sleep(BRIEFLY / 2)
    assert len(left(roots)) == 1
    if is_away:
        await asyncio.sleep(BRIEFLY)
        assert len(left(roots)) == 1, "nobody was there to remove it"
        cluster.component(CONTROLLER).launch()
    await team.parley_claim("build", lambda c: c.status.allocation is None, "is free")
    assert left(roots) == []
    await team.delete(CLAIMS, "build")


async def test_what_a_failed_task_wrote_is_there_for_the_last_one(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    await begin(cluster, team, whenUnused={"keepSeconds": KEPT})
    node, inode, _ = await task(cluster, team, "clone", "echo source > file && cat file")
    await team.create(pod("build", claims={"work": "build"}, script="echo partial > /workspace/log; exit 3"))
    await team.pod("build", lambda one: one.status.phase == "Failed", "has failed")
    await asyncio.sleep(WITHOUT_USERS)
    assert await task(cluster, team, "report", "cat file log") == [node, inode, "source", "partial"]
    await team.delete(CLAIMS, "build")
    assert left(roots) == []


async def test_a_workspace_of_a_template_goes_with_its_pod(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    await begin(cluster, team)
    await team.create(
        {
            "apiVersion": "parley.dev/v1alpha1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "own"},
            "spec": {"spec": {"resourceClassName": f"shelf-{team.name}", "parameters": {"mountPath": "/mine"}}},
        },
        pod("alone", templates={"own": "own"}),
    )
    await team.runs("alone")
    execute(cluster, team, "alone", "test $WORKSPACE_OWN_PATH = /mine && mkdir -p /mine/a/b && touch /mine/a/b/c")
    assert len(left(roots)) == 1
    await team.delete(PODS, "alone")
    assert left(roots) == []


async def test_who_writes_more_than_its_size_is_told(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    await begin(cluster, team)
    await team.create(claim("small", f"shelf-{team.name}", size="1Mi"))
    script = f"dd if=/dev/zero of=/workspace/file bs=1M count=3 && {UNTIL_FINISHED}"
    await team.create(pod("writer", claims={"work": "small"}, script=script))
    running = await team.runs("writer")
    for name, kind in (("small", "ResourceClaim"), ("writer", "Pod")):
        assert await team.told(name, reasons.OVER_SIZE, kind, within=TOLD) == (
            f"claim {team.name}/small: it uses 3Mi of the disk of node {running.spec.node_name}, more than its "
            "size of 1Mi, and takes that from others: remove files, or recreate the claim with the size that it "
            "needs"
        )
    await team.delete(PODS, "writer")
    await team.delete(CLAIMS, "small")


def attached() -> str:
    """The files of this machine that are loop devices."""
    return subprocess.run(["losetup", "--all"], capture_output=True, text=True, check=True).stdout


async def test_who_writes_more_than_an_enforced_size_finds_the_workspace_full(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    size = random.randint(20, 60)
    await begin(
        cluster,
        team,
        whenUnused={"keepSeconds": KEPT},
        parameters={"enforce": "Image", "owner": {"gid": 2000, "mode": "2770"}},
    )
    kind = f"shelf-{team.name}"
    limited = claim("limited", kind, size=f"{size}Mi")
    await team.create(limited, *(pod(n, claims={"work": "limited"}, script=UNTIL_FINISHED) for n in ("a", "b")))
    running = await team.runs("a")
    assert (await team.runs("b")).spec.node_name == running.spec.node_name
    look = "cd /workspace && ls -a && stat -c '%u %g %a' ."
    assert execute(cluster, team, "a", look).splitlines() == [".", "..", "0 2000 2770"]
    fill = f"dd if=/dev/zero of=/workspace/file bs=1M count={2 * size} 2>&1 || true"
    assert "No space left on device" in execute(cluster, team, "a", fill)
    written = int(execute(cluster, team, "b", "stat -c %s /workspace/file"))
    assert 0.7 * size < written / 1024**2 < size
    (name,) = left(roots)
    assert attached().count(name) == 1, "all pods have the same device"

    for one in ("a", "b"):
        await team.delete(PODS, one)
    assert name not in attached()
    await team.create(pod("late", claims={"work": "limited"}, script=UNTIL_FINISHED))
    await team.runs("late")
    assert int(execute(cluster, team, "late", "stat -c %s /workspace/file")) == written
    await team.delete(PODS, "late")
    await team.delete(CLAIMS, "limited")
    assert left(roots) == []
    assert name not in attached()


async def test_a_directory_is_its_owners_and_stays_where_its_claim_says_so(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    await begin(cluster, team, parameters={"retainAtMost": 1, "owner": {"gid": 2000, "mode": "2770"}})
    kind = f"shelf-{team.name}"
    await team.create(claim("kept", kind, size="1Mi", reclaim="Retain"))
    await team.create(pod("writer", claims={"work": "kept"}, script=UNTIL_FINISHED))
    running = await team.runs("writer")
    look = "cd /workspace && stat -c '%u %g %a' . && echo result > file && stat -c %g file"
    assert execute(cluster, team, "writer", look).splitlines() == ["0 2000 2770", "2000"]
    await team.delete(PODS, "writer")
    await team.delete(CLAIMS, "kept")
    (place,) = (roots[running.spec.node_name] / "retained" / team.name).iterdir()
    assert (place / "file").read_text() == "result\n"
    assert left(roots) == []

    await team.create(claim("closed", kind, size="1Mi", readOnly=True))
    await team.create(pod("reader", claims={"work": "closed"}, script=UNTIL_FINISHED))
    await team.runs("reader")
    assert execute(cluster, team, "reader", "touch /workspace/file 2>&1 || true").endswith(
        "Read-only file system\n"
    )
    await team.delete(PODS, "reader")
    await team.delete(CLAIMS, "closed")


async def test_a_view_has_the_files_of_another_claim_which_stays_as_long_as_it_is_used(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    await begin(cluster, team)
    await team.create(
        template("inputs", f"shelf-{team.name}", source={"claim": "build"}, mountPath="/inputs"),
        pod("early", templates={"inputs": "inputs"}, script=UNTIL_FINISHED),
    )
    told = await team.scheduling("early", lambda s: bool(s.status.message), "is told why it waits", within=SOON)
    assert "claim build, the source, has no workspace yet" in told.status.message
    await team.create(pod("writer", claims={"work": "build"}, script=UNTIL_FINISHED))
    node = (await team.runs("writer")).spec.node_name
    execute(cluster, team, "writer", "echo result > /workspace/file")
    assert (await team.runs("early")).spec.node_name == node
    look = "cat $WORKSPACE_INPUTS_PATH/file; touch /inputs/other 2>&1 || true"
    assert execute(cluster, team, "early", look).splitlines() == [
        "result",
        "touch: /inputs/other: Read-only file system",
    ]
    touch(cluster, team, "writer")
    await team.pod("writer", lambda one: one.status.phase == "Succeeded", "is done")
    await asyncio.sleep(WITHOUT_USERS)
    assert (await team.parley_claim("build", lambda c: not c.status.reserved_for, "is unused")).status.allocation
    assert execute(cluster, team, "early", "cat /inputs/file") == "result\n"
    await team.delete(PODS, "early")
    await team.parley_claim("build", lambda c: c.status.allocation is None, "is free")
    assert left(roots) == []
    await team.delete(CLAIMS, "build")


@asynccontextmanager
async def cordoned(client: Client, node: str) -> AsyncIterator[None]:
    """The node takes no pods meanwhile; afterwards it is as before, without the taint of a node out of service."""
    await client.patch(NODES, node, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        await taint(client, node)
        await client.patch(NODES, node, {"spec": {"unschedulable": None}})


async def taint(client: Client, node: str, *keys: str) -> None:
    """The node has these taints, beside Kubernetes' own."""
    found = (await client.get(NODES.untyped(), node))["spec"].get("taints", [])
    others = [one for one in found if one["key"] != OUT_OF_SERVICE_TAINT]
    taints = [*others, *({"key": key, "value": "nodeshutdown", "effect": "NoSchedule"} for key in keys)]
    await client.patch(NODES.untyped(), node, {"spec": {"taints": taints or None}})


async def stranded(team: Namespace, name: str, node: str) -> None:
    """A further task waits, and its user knows where and why; the one before it is done with the claim."""
    await team.parley_claim(
        "build", lambda c: bool(c.status.kept_until) and not c.status.reserved_for, "is unused"
    )
    await team.create(pod(name, claims={"work": "build"}, script=UNTIL_FINISHED))
    told = await team.scheduling(
        name, lambda s: s.status.waiting_for == reasons.CLAIM_STRANDED, "is told why it waits", within=SOON
    )
    assert told.status.message == (
        f"claim {team.name}/build is allocated on node {node}, where the pod can't go: node {node}: cordoned. "
        "Remedy: uncordon the node, or delete the claim to start over elsewhere"
    )
    assert await team.told(name, reasons.CLAIM_STRANDED) == told.status.message


async def test_a_task_waits_for_a_cordoned_node_and_then_finds_the_same_directory(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    await begin(cluster, team, whenUnused={"keepSeconds": KEPT})
    node, inode, _ = await task(cluster, team, "clone", "echo source > file && cat file")
    async with cordoned(team.client, node):
        await stranded(team, "build", node)
        shown = await team.parley_claim("build", lambda c: "Stranded" in conditions(c), "is stranded", within=SOON)
        assert conditions(shown)["Stranded"] == "NodeCordoned"
        assert conditions(shown)["Ready"] == reasons.CLAIM_STRANDED
    running = await team.runs("build")
    look = execute(cluster, team, "build", "cd $WORKSPACE_BUILD_PATH && stat -c %i . && cat file").splitlines()
    assert [running.spec.node_name, *look] == [node, inode, "source"]
    whole = await team.parley_claim("build", lambda c: "Stranded" not in conditions(c), "is not stranded any more")
    assert conditions(whole)["Ready"] == "Ready"
    await end(team, "build")
    assert left(roots) == []


async def test_a_workspace_begins_anew_only_where_its_node_is_out_of_service_which_cleans_up_when_it_is_back(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    way = {"onNodeUnavailable": "Recreate", "unavailableSeconds": 2}
    await begin(cluster, team, whenUnused={"keepSeconds": KEPT}, parameters=way)
    node, _, _ = await task(cluster, team, "clone", "echo source > file && cat file")
    async with cordoned(team.client, node):
        await stranded(team, "next", node)
        await asyncio.sleep(WITHOUT_USERS)
        assert (await team.client.get(PODS, "next", team.name)).spec.node_name == ""
        assert len(left(roots)) == 1

        plugin = cluster.component(f"shelf-{node}")
        plugin.kill()
        try:
            await taint(team.client, node, OUT_OF_SERVICE_TAINT)
            running = await team.runs("next")
            assert running.spec.node_name != node
            assert execute(cluster, team, "next", "ls $WORKSPACE_BUILD_PATH") == ""
            assert await team.told("build", reasons.CLAIM_RECREATED, "ResourceClaim") == (
                f"node {node} is out of service: what the claim had there is given up, and the claim is "
                "allocated again"
            )
            assert len(left({node: roots[node]})) == 1
        finally:
            plugin.start()
        await until(team.client, CLAIM_RELEASES, lambda found: not found, "the node that is back has answered")
        assert left({node: roots[node]}) == []
        assert len(left(roots)) == 1
    await end(team, "next")
    assert left(roots) == []


async def test_a_workspace_fails_for_good_when_its_node_was_cordoned_for_long(
    cluster: Cluster, team: Namespace, roots: dict[str, Path]
) -> None:
    way = {"onNodeUnavailable": "Fail", "unavailableSeconds": 3}
    await begin(cluster, team, whenUnused={"keepSeconds": KEPT}, parameters=way)
    node, _, _ = await task(cluster, team, "clone", "echo source > file && cat file")
    async with cordoned(team.client, node):
        await team.create(pod("next", claims={"work": "build"}))
        failed = await team.parley_claim("build", lambda c: "Failed" in conditions(c), "has failed", within=SOON)
        assert conditions(failed)["Ready"] == reasons.CLAIM_FAILED
        why = await team.waits("next", reasons.CLAIM_FAILED)
        assert why.startswith(f"claim {team.name}/build has failed: node {node}, where it is allocated, has been")
    await end(team, "next")
    assert left(roots) == []


async def end(team: Namespace, name: str) -> None:
    """The pod and the claim are gone, while the plugins run that have to clean up after them."""
    await team.delete(PODS, name)
    await team.delete(CLAIMS, "build")


def conditions(claim: ResourceClaim) -> dict[str, str]:
    """The reasons of its conditions, by type."""
    return {condition.type: condition.reason for condition in claim.status.conditions}
