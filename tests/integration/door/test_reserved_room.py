"""Room that is reserved for the users of a claim, under the real scheduler: a late big task fits beside others."""

import uuid
from collections.abc import AsyncIterator

import pytest
from tests.cluster.manifests import Manifest, claim, container, pod, resource_class, workspace_disk
from tests.cluster.namespace import Namespace
from tests.integration.door.conftest import Parley

from parley.api import reasons
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Client
from parley_devcluster.fake_nodes import ALLOCATABLE

pytestmark = pytest.mark.cluster

CPUS = 32
SLOTS = int(ALLOCATABLE["pods"])
"""Of a node."""


class Directories(WorkspaceDriver):
    """There is no node plugin here that would remove anything."""

    leaves_data = False


@pytest.fixture
async def team(admin: Client, parley: Parley) -> AsyncIterator[Namespace]:
    """A namespace. Workspaces of a node have its one device in common, so nobody looks who has it."""
    async with Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine:
        yield mine


def task(name: str, of: str, cpus: int) -> Manifest:
    resources = {"requests": {"cpu": str(cpus)}, "claims": [{"name": "work"}]}
    return pod(name, claims={"work": of}, containers=[container("main", "true", resources=resources)])


async def begin(team: Namespace, parley: Parley, **reserve: str | int) -> None:
    """One node has a disk. The first task of `build` was a small one, and has ended."""
    await parley.kill()
    parley.drivers = (Directories,)
    await parley.start()
    class_ = {"whenUnused": {"keepSeconds": 600}}
    most = {"maxReserve": {"cpu": str(CPUS), "pods": SLOTS}}
    await team.create(
        workspace_disk("node-0"), resource_class("builds", Directories.name, parameters=most, **class_)
    )
    parameters = {"reserve": reserve} if reserve else {}
    await team.create(claim("build", "builds", size="1Mi", **parameters))
    await team.create(task("clone", "build", 1))
    assert (await team.bound("clone")).spec.node_name == "node-0"
    await team.finish("clone")
    await team.claim("build", lambda mirror: not mirror.status.reserved_for, "is used by nobody")


async def test_with_a_reservation_the_late_big_task_fits_and_others_are_kept_out(
    team: Namespace, parley: Parley
) -> None:
    await begin(team, parley, cpu="24")
    for name in ("beside", "kept-out"):
        await team.create(claim(name, "builds", size="1Mi"), task(name, name, 8))
        if name == "beside":
            assert (await team.bound(name)).spec.node_name == "node-0"
    told = await team.waits("kept-out", reasons.NO_CANDIDATES)
    assert f"too little cpu left: 24 cpu are reserved for claim {team.name}/build" in told

    await parley.kill()
    await parley.start()
    await team.create(task("late", "build", 24))
    assert (await team.bound("late")).spec.node_name == "node-0"
    await team.finish("late")
    await team.waits("kept-out", reasons.NO_CANDIDATES)


async def test_pod_slots_are_kept_too_and_the_reason_says_so(team: Namespace, parley: Parley) -> None:
    await begin(team, parley, pods=SLOTS - 1)
    for name in ("beside", "kept-out"):
        await team.create(claim(name, "builds", size="1Mi"), task(name, name, 1))
        if name == "beside":
            assert (await team.bound(name)).spec.node_name == "node-0"
    told = await team.waits("kept-out", reasons.NO_CANDIDATES)
    assert f"no pod slots left: {SLOTS - 1} pod slots are reserved for claim {team.name}/build" in told
    await team.create(task("late", "build", 1))
    assert (await team.bound("late")).spec.node_name == "node-0"


async def test_without_one_others_have_the_room(team: Namespace, parley: Parley) -> None:
    await begin(team, parley)
    for name in ("beside", "one-more"):
        await team.create(claim(name, "builds", size="1Mi"), task(name, name, 8))
        assert (await team.bound(name)).spec.node_name == "node-0"
    await team.create(task("late", "build", 24))
    assert "too little cpu left" in await team.waits("late", reasons.CLAIM_STRANDED)
