"""Pipelines over one workspace on two real nodes while controller and plugins are killed: the same directory and
files in all tasks, no objects but their own, and nothing left.

    WORKSPACE_RUNS=20 WORKSPACE_SEED=7 pytest tests/e2e/test_workspace_kills.py -s

plays more of them, half with kills, and the same ones again.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from tests.cluster.containers import execute, touch
from tests.cluster.disturbances import kept_running
from tests.cluster.inventory import Inventory, added, inventory
from tests.cluster.manifests import UNTIL_FINISHED, claim, pod, resource_class
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import offered
from tests.cluster.workspaces import left

from parley.api.resources import CLAIM_RELEASES, CLAIMS, PODS
from parley.drivers.workspace import DISK, WorkspaceDriver
from parley_devcluster import Cluster, machine
from parley_devcluster.parley import CONTROLLER

pytestmark = pytest.mark.cluster

RUNS = int(os.environ.get("WORKSPACE_RUNS", "1"))
SEED = int(os.environ.get("WORKSPACE_SEED", Random().randrange(10**6)))
UNUSED = float(os.environ.get("WORKSPACE_UNUSED", "2"))
"""Seconds in which no pod uses the workspace, between two tasks."""

LEASE = 25.0
"""Seconds between kills of the controller: the next one leads when the lease of a killed one is over."""

PATIENCE = 150.0
"""Seconds for a pod: a kubelet whose plugin was away tries again after pauses."""


@asynccontextmanager
async def killed(cluster: Cluster, draw: Random, tally: Counter[str]) -> AsyncIterator[None]:
    """Controller and plugins are killed at any moment, and start over a second later."""
    names = [CONTROLLER, *(f"shelf-{node.name}" for node in cluster.nodes)]

    async def kill() -> None:
        while True:
            for name in draw.sample(names, len(names)):
                await asyncio.sleep(draw.uniform(0.5, 4.0))
                await asyncio.to_thread(cluster.component(name).kill)
                tally[name] += 1
            await asyncio.sleep(LEASE)

    async with AsyncExitStack() as running:
        for name in names:
            await running.enter_async_context(kept_running(cluster, name))
        killing = asyncio.create_task(kill())
        try:
            yield
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
            await asyncio.sleep(1.5)  # whoever was killed last is launched again


async def task(cluster: Cluster, team: Namespace, name: str, claim_name: str, script: str) -> list[str]:
    """A pod with the workspace runs the script, and ends. Returns its node, the directory's inode and the script's
    lines."""
    await team.create(pod(name, claims={"work": claim_name}, script=UNTIL_FINISHED))
    running = await team.runs(name, within=PATIENCE)
    lines = execute(cluster, team, name, f"cd /workspace && stat -c %i . && {script}").splitlines()
    touch(cluster, team, name)
    await team.pod(name, lambda one: one.status.phase == "Succeeded", "is done")
    return [running.spec.node_name, *lines]


async def nothing_else(cluster: Cluster, before: Inventory, pods: int, *, within: float) -> None:
    """So many pods have come, their PodSchedulings, the claim with its mirror, and no object of any other kind. A
    controller that has just taken over may wait a moment for a node's receipt."""
    deadline = time.monotonic() + within
    while True:
        now = added(before, await asyncio.to_thread(inventory, cluster))
        schedulings = now.pop("podschedulings.parley.dev", 0)
        if now == {"pods": pods, "resourceclaims.parley.dev": 1, "resourceclaims.resource.k8s.io": 1}:
            assert schedulings <= pods
            return
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.5)


async def pipeline(cluster: Cluster, team: Namespace, draw: Random, *, settled: float) -> None:
    """A clone, four builds side by side, a report; nobody is there in between. After `settled` seconds at most
    there is nothing else."""
    run, clone, report, *builds = (f"task-{number}" for number in draw.sample(range(10**6), 7))
    before = await asyncio.to_thread(inventory, cluster)
    await team.create(claim(run, f"shelf-{team.name}", size=f"{draw.randint(1, 999)}Mi"))
    source = f"{draw.randrange(10**9)}"
    node, inode, _ = await task(cluster, team, clone, run, f"echo {source} > source && cat source")
    await asyncio.sleep(UNUSED)
    await nothing_else(cluster, before, 1, within=settled)
    found = await asyncio.gather(
        *(task(cluster, team, name, run, f"cat source && echo {name} > {name}") for name in builds)
    )
    assert found == [[node, inode, source]] * 4
    await asyncio.sleep(UNUSED)
    look = f"ls && cat {' '.join(builds)}"
    assert await task(cluster, team, report, run, look) == [node, inode, "source", *sorted(builds), *builds]
    await nothing_else(cluster, before, 6, within=settled)
    await asyncio.gather(*(team.delete(PODS, name) for name in (clone, report, *builds)))
    await team.delete(CLAIMS, run)


async def test_pipelines_find_their_files_while_everything_is_killed_and_leave_nothing(
    cluster: Cluster, places: Path, team: Namespace
) -> None:
    for node in cluster.nodes:
        await offered(team.client, node.name, [DISK], WorkspaceDriver.name)
    kind = resource_class(
        f"shelf-{team.name}", WorkspaceDriver.name, shareable=True, whenUnused={"keepSeconds": 600}
    )
    await team.create(kind)
    mounts, tally = set(machine.mounts_below(cluster.directory)), Counter[str]()
    print(f"seed {SEED}")
    for turn in range(RUNS):
        began = time.monotonic()
        async with AsyncExitStack() as around:
            kills = turn % 2 == 0
            if kills:
                await around.enter_async_context(killed(cluster, Random(f"{SEED}/{turn}"), tally))
            draw = Random(f"{SEED}/{turn}/names")
            await pipeline(cluster, team, draw, settled=PATIENCE if kills else 0)
        print(f"run {turn}: {time.monotonic() - began:.0f} s, killed so far: {dict(tally)}")
    deadline = time.monotonic() + 90
    while found := left(cluster, places, mounts):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.5)
    assert (await team.client.list(CLAIM_RELEASES)).items == ()
    assert tally
