"""The extender is away, or its controller dies: pods of other schedulers do not notice, its own go on afterwards.

A failover needs no hand: the scheduler's calls reach whoever leads.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.cluster.load import Bindings, assert_each_has_its_own
from tests.cluster.manifests import pod, template
from tests.cluster.namespace import Namespace
from tests.cluster.replicas import Replicas
from tests.integration.extender.conftest import Devices, parley_pod
from tests.integration.extender.service import Service

from parley.api.builtin import Pod
from parley_devcluster import Cluster, Component
from parley_devcluster.second_scheduler import SCHEDULER_NAME

pytestmark = pytest.mark.cluster

COMMAND = ("controller", "--extender-address", "127.0.0.1:0", "--scheduler-name", SCHEDULER_NAME)


def was_tried(pod: Pod) -> bool:
    return any(condition.type == "PodScheduled" for condition in pod.status.conditions)


async def test_while_the_extender_is_away_only_its_own_pods_wait(
    team: Namespace, devices: Devices, controller: Component, service: Service
) -> None:
    await devices(node_0=1, node_1=1)
    await team.create(template("one"))
    reachable, service.backends = service.backends, ()
    service.forget()

    await team.create(parley_pod("plain"), parley_pod("claiming", templates={"gpu": "one"}))
    await team.create(pod("native", templates={"gpu": "one"}), pod("native-plain"))

    await team.bound("native")
    await team.bound("native-plain")
    for name in ("plain", "claiming"):
        waiting = await team.pod(name, was_tried, "was tried")
        assert not waiting.spec.node_name
    service.backends = reachable
    for name in ("plain", "claiming"):
        await team.bound(name)


async def test_pods_go_on_when_the_controller_was_killed_and_begins_anew(
    team: Namespace, devices: Devices, controller: Component
) -> None:
    await devices(node_0=20, node_1=20, node_2=20)
    await team.create(template("one"))
    names = [f"p{number}" for number in range(40)]
    async with Bindings.watch(team.client, team.name) as bindings:
        await team.create(*(parley_pod(name, templates={"gpu": "one"}) for name in names[:20]))
        await bindings.count(5)
        controller.kill()
        await asyncio.to_thread(controller.start)
        await team.create(*(parley_pod(name, templates={"gpu": "one"}) for name in names[20:]))

        await bindings.all_of(names)
    await assert_each_has_its_own(team, names)


@pytest.fixture
async def controllers(
    team: Namespace, cluster: Cluster, controller_account: Path, controller: Component, service: Service
) -> AsyncIterator[Replicas]:
    """Controllers in the place of the shared one, none at first; the Service knows all that ever ran."""
    await asyncio.to_thread(controller.stop)
    competing = Replicas(cluster, controller_account, COMMAND, "restored")
    async with known(competing, service):
        try:
            yield competing
        finally:
            await competing.stop()


@asynccontextmanager
async def known(controllers: Replicas, service: Service) -> AsyncIterator[None]:
    """Within the block the Service hears of each controller that begins to serve."""

    async def tell() -> None:
        while True:
            entries = (entry for program in controllers.programs for entry in program.entries)
            service.backends = [entry["address"] for entry in entries if entry["event"] == "extender"]
            await asyncio.sleep(0.05)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()


async def test_another_controller_goes_on_after_one_that_was_killed_and_one_that_was_asked_to_end(
    team: Namespace, devices: Devices, controllers: Replicas
) -> None:
    await devices(node_0=30, node_1=30, node_2=30)
    await team.create(template("one"))
    names = [f"p{number}" for number in range(50)]
    leader = await controllers.lead()
    await controllers.start()

    async def arrive() -> None:
        for name in names:
            await team.create(parley_pod(name, templates={"gpu": "one"}))
            await asyncio.sleep(0.1)

    async with Bindings.watch(team.client, team.name) as bindings, asyncio.TaskGroup() as tasks:
        tasks.create_task(arrive())
        await bindings.count(10)
        killed = asyncio.get_running_loop().time()
        await leader.kill()
        await bindings.count(25)
        print(f"no pod was bound for {bindings.longest_gap(killed):.1f} s after the leader was killed")
        for program in controllers.programs:
            if program.running and any(entry["event"] == "restored" for entry in program.entries):
                await program.stop()
        await bindings.all_of(names)
    await assert_each_has_its_own(team, names)
