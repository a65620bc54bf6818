"""One workspace for one task at a time, on two real nodes; and what is left when its owner goes in the middle."""

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.cluster.containers import execute
from tests.cluster.disturbances import kept_running
from tests.cluster.manifests import claim, pod
from tests.cluster.namespace import Namespace
from tests.cluster.watching import until
from tests.cluster.workspaces import kept_workspaces, left

from parley.api.resources import CLAIM_RELEASES, CLAIMS, CONFIG_MAPS, PODS
from parley_devcluster import Cluster, machine
from parley_devcluster.parley import CONTROLLER
from parley_devcluster.second_scheduler import SCHEDULER_NAME

pytestmark = pytest.mark.cluster

SEED = Random().randrange(10**6)
PATIENCE = 240.0
"""Seconds for a pod: a kubelet whose plugin was away tries again after pauses."""
REMOVED = 30.0
"""Seconds until nothing is left of a claim whose owner is gone."""
NOW = "cut -d' ' -f1 /proc/uptime"


async def restart(cluster: Cluster, node: str) -> None:
    """The controller, all plugins and the node's kubelet are killed at once, and start over."""
    names = [CONTROLLER, *(f"shelf-{one.name}" for one in cluster.nodes), cluster.node(node).kubelet]
    for name in names:
        await asyncio.to_thread(cluster.component(name).kill)
    for name in names:
        await asyncio.to_thread(cluster.component(name).launch)


@pytest.mark.parametrize("scheduler", ["default-scheduler", SCHEDULER_NAME])
async def test_tasks_have_it_one_after_the_other_in_the_order_in_which_they_came_over_a_restart_of_everything(
    cluster: Cluster, places: Path, team: Namespace, scheduler: str
) -> None:
    draw = Random(SEED)
    tasks = [f"task-{number}" for number in draw.sample(range(100), 5)]
    print(f"seed {SEED}: {tasks}, below {places}")
    await team.create(claim("build", await kept_workspaces(cluster, team, shareable=False), size="1Mi"))
    async with AsyncExitStack() as running:
        for name in (CONTROLLER, *(f"shelf-{node.name}" for node in cluster.nodes)):
            await running.enter_async_context(kept_running(cluster, name))
        for name in tasks:
            work = f"{NOW} > began-{name}; sleep {draw.uniform(1, 3):.1f}; {NOW} > ended-{name}"
            script = f"cd /workspace && {work}"
            await team.create(pod(name, claims={"work": "build"}, script=script, schedulerName=scheduler))
            await asyncio.sleep(1.1)  # pods of one second have no order
        first = await team.pod(tasks[0], lambda one: one.status.phase in ("Running", "Succeeded"), "has begun")
        await restart(cluster, first.spec.node_name)
        for name in tasks:
            await team.pod(name, lambda one: one.status.phase == "Succeeded", "is done", within=PATIENCE)
        await team.create(pod("look", claims={"work": "build"}))
        looks = await team.runs("look", within=PATIENCE)
    assert looks.spec.node_name == first.spec.node_name
    began, ended = ([_time(cluster, team, f"{kind}-{name}") for name in tasks] for kind in ("began", "ended"))
    for resource, name in ((PODS, "look"), (CLAIMS, "build")):
        await team.delete(resource, name)  # as long as there are plugins
    assert began == sorted(began)
    handovers = [then - before for before, then in zip(ended, began[1:], strict=False)]
    print("seconds from one task to the next:", [f"{one:.1f}" for one in handovers])
    assert all(before < after for before, after in itertools.pairwise(sorted([*began, *ended])))
    assert min(handovers) > 0


def _time(cluster: Cluster, team: Namespace, file: str) -> float:
    return float(execute(cluster, team, "look", f"cat /workspace/{file}"))


async def test_when_its_owner_is_deleted_in_the_middle_nothing_is_left_of_it(
    cluster: Cluster, places: Path, team: Namespace
) -> None:
    """Its tasks belong to the owner, too, as those of a workflow do."""
    mounts = set(machine.mounts_below(cluster.directory))
    tasks = [pod(name, claims={"work": "build"}) for name in ("task-a", "task-b")]
    class_ = await kept_workspaces(cluster, team, shareable=True)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "run"}}
    uid = (await team.client.create(CONFIG_MAPS.untyped(), body, team.name))["metadata"]["uid"]
    for manifest in (claim("build", class_, size="1Mi"), *tasks):
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "run", "uid": uid}
        manifest["metadata"]["ownerReferences"] = [owner]
        await team.create(manifest)
    for name in ("task-a", "task-b"):
        await team.runs(name)
        execute(cluster, team, name, f"mkdir -p /workspace/{name}/deep && echo data > /workspace/{name}/deep/file")
    assert any("/data/" in one for one in left(cluster, places, mounts))

    clock = asyncio.get_running_loop().time
    since = clock()
    await team.client.delete(CONFIG_MAPS, "run", team.name)
    for resource, namespace in ((PODS, team.name), (CLAIMS, team.name), (CLAIM_RELEASES, None)):
        await until(
            team.client, resource.untyped(), _none, "nothing is there", namespace=namespace, within=REMOVED
        )
    while found := left(cluster, places, mounts):
        assert clock() < since + REMOVED, found
        await asyncio.sleep(0.2)
    print(f"gone after {clock() - since:.0f} s")


def _none(found: Mapping[Any, Any]) -> bool:
    return not found
