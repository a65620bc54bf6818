"""Users of workspaces who want more than their own, on two real nodes: nothing outside of a workspace is touched.

    HOSTILE_PODS=50 HOSTILE_FILES=1000000 HOSTILE_SEED=7 pytest tests/e2e/test_workspace_hostile.py -s

has more of them, and the same names again.
"""

import asyncio
import os
import time
import uuid
from pathlib import Path
from random import Random

import pytest
from tests.cluster.containers import execute, touch
from tests.cluster.manifests import (
    UNTIL_FINISHED,
    claim,
    ordinary_claim,
    ordinary_class,
    pod,
    template,
)
from tests.cluster.namespace import Namespace
from tests.cluster.workspaces import kept_workspaces, left
from tests.support.attacked import SWAPS, attacker, bystander, seen

from parley.api.resources import CLAIMS, PODS
from parley.drivers.workspace import WorkspaceDriver
from parley_devcluster import Cluster, machine

pytestmark = pytest.mark.cluster

USERS = int(os.environ.get("HOSTILE_PODS", "4"))
FILES = int(os.environ.get("HOSTILE_FILES", "20000"))
SEED = int(os.environ.get("HOSTILE_SEED", Random().randrange(10**6)))
CALL = 40.0
"""Seconds: no call of the kubelet's takes longer."""
EMPTIED = 900.0

CONTENT = """
cd /workspace && mkdir -p t/x/y t/sub/x/y t/sub/sub/x
for place in . t t/sub; do
  ln -s {canary} $place/absolute; ln -s ../../../../../../../..{canary} $place/up; ln -s loop $place/loop
  mknod $place/zero c 1 5; mknod $place/disk b 8 0; mkfifo $place/pipe; truncate -s 1T $place/giant
  cp /bin/busybox $place/setuid; chmod 6755 $place/setuid; ln $place/setuid $place/hard
done
mknod /tmp/zero c 1 5; head -c 4 /tmp/zero | wc -c; head -c 4 /workspace/zero 2>&1 || true
grep ' /workspace ' /proc/mounts
"""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A tree that nobody may touch."""
    return bystander(tmp_path / "canary")


def directories(places: Path) -> list[Path]:
    """The workspaces on all nodes."""
    return list(places.glob("*/root/data/*"))


async def emptied(cluster: Cluster, places: Path, mounts: set[Path]) -> None:
    """Return when nothing is left of workspaces on the nodes."""
    deadline = time.monotonic() + EMPTIED
    while found := left(cluster, places, mounts):
        assert time.monotonic() < deadline, found[:10]
        await asyncio.sleep(0.2)


async def test_links_devices_and_giants_lead_nowhere_also_when_they_are_swapped_while_pods_come_and_go(
    cluster: Cluster, places: Path, team: Namespace, canary: Path
) -> None:
    """The process that swaps them keeps the directory open, as one can that was handed its descriptor."""
    mounts, draw = set(machine.mounts_below(cluster.directory)), Random(SEED)
    first, *users = (f"task-{number}" for number in draw.sample(range(1000), USERS + 1))
    print(f"seed {SEED}: {first}, {users}, below {places}")
    await team.create(
        claim("build", await kept_workspaces(cluster, team, shareable=True), size=f"{draw.randint(1, 99)}Mi")
    )
    await team.create(pod(first, claims={"work": "build"}, script=UNTIL_FINISHED))
    await team.runs(first)
    before = seen(canary)
    own, workspaces, mounted = execute(cluster, team, first, CONTENT.format(canary=canary)).splitlines()
    assert own == "4", "the container can open such a device elsewhere"
    assert workspaces.endswith("Permission denied")
    assert {"nosuid", "nodev"} <= set(mounted.split()[3].split(","))
    touch(cluster, team, first)
    await team.pod(first, lambda one: one.status.phase == "Succeeded", "is done")

    (directory,) = directories(places)
    with attacker(SWAPS, directory, canary):
        for name in users:
            await team.create(pod(name, claims={"work": "build"}, script="ls /workspace/t/* || true"))
            await team.pod(name, lambda one: one.status.phase == "Succeeded", "is done")
            await team.delete(PODS, name)
        await team.delete(PODS, first)
        await team.delete(CLAIMS, "build")
        await emptied(cluster, places, mounts)
    assert seen(canary) == before


async def test_no_call_waits_until_a_great_many_files_are_removed(
    cluster: Cluster, places: Path, team: Namespace
) -> None:
    mounts = set(machine.mounts_below(cluster.directory))
    await team.create(template("many", await kept_workspaces(cluster, team, shareable=True), size="1Mi"))
    await team.create(pod("hoards", templates={"work": "many"}, script=UNTIL_FINISHED))
    await team.runs("hoards")
    execute(cluster, team, "hoards", f"cd /workspace && mkdir sub && cd sub && seq {FILES} | xargs touch")
    began = time.monotonic()
    await team.delete(PODS, "hoards")
    gone = time.monotonic()
    assert gone - began < 2 * CALL  # a call that took too long would have been repeated
    await emptied(cluster, places, mounts)
    print(f"the pod was gone after {gone - began:.0f} s, its {FILES} files {time.monotonic() - gone:.0f} s later")


async def test_a_workspace_of_another_namespace_is_reached_neither_by_name_nor_by_its_directory(
    cluster: Cluster, places: Path, team: Namespace
) -> None:
    """Its directory's name is known to the thief, who may create any object of ordinary DRA."""
    kind = await kept_workspaces(cluster, team, shareable=True)
    await team.create(claim("build", kind, size="1Mi"), pod("owner", claims={"work": "build"}))
    await team.runs("owner")
    (directory,) = directories(places)
    async with Namespace(team.client, f"thief-{uuid.uuid4().hex[:6]}") as thief:
        await thief.create(
            pod("by-name", claims={"work": "build"}),
            template("view", kind, source={"claim": "build"}),
            pod("by-view", templates={"work": "view"}),
        )
        told = await thief.scheduling("by-view", lambda s: bool(s.status.message), "is told why it waits")
        assert "claim build, the source, has no workspace yet" in told.status.message

        forged = ordinary_claim("forged", f"disks-{thief.name}", tolerate=True)
        handle = {"workspace": directory.name, "bytes": 1, "mountPath": "/mine", "variable": "WORKSPACE_MINE_PATH"}
        opaque = {"driver": WorkspaceDriver.name, "parameters": handle}
        forged["spec"]["devices"]["config"] = [{"opaque": opaque}]
        await thief.create(
            ordinary_class(f"disks-{thief.name}", f"device.driver == '{WorkspaceDriver.name}'"),
            forged,
            pod("by-directory", claims={"work": "forged"}),
        )
        note = await thief.told("by-directory", "FailedPrepareDynamicResources")
        assert "were allocated by ordinary DRA, not by parley-controller" in note
        assert directories(places) == [directory]
        assert (await thief.client.get(PODS, "by-name", thief.name)).spec.node_name == ""
    await team.delete(PODS, "owner")
    await team.delete(CLAIMS, "build")
