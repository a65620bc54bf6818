"""Something restarts while pods run: a container, a sandbox, the plugin, the kubelet, the container runtime."""

import asyncio

import pytest
from tests.cluster.containers import (
    LOOK,
    UNTIL_CRASHED,
    devices_seen,
    restarted,
    sandbox,
    status,
    touch,
)
from tests.cluster.manifests import Manifest, pod
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import own_plugin
from tests.cluster.nodes import (
    PREPARED,
    UNPREPARED,
    calls,
    prepared,
    registrations,
    specifications,
    wait_for_registration,
)

from parley.api.resources import PODS
from parley_devcluster import Cluster, processes

pytestmark = pytest.mark.cluster

NODE = "node-b"


def lasting(name: str, node: str = NODE) -> Manifest:
    """A pod with a device whose container is started again when it ends."""
    where = {"kubernetes.io/hostname": node}
    script = LOOK + UNTIL_CRASHED
    return pod(name, templates={"gpu": "one"}, script=script, nodeSelector=where, restartPolicy="Always")


async def device_of(team: Namespace, name: str) -> list[str]:
    return sorted(device.device for device in await team.devices(name))


async def uid_of(team: Namespace, name: str) -> str:
    (mirror,) = await team.mirrors(name)
    return mirror.metadata.uid


async def test_a_container_or_a_sandbox_that_dies_is_made_again_with_its_device_and_nothing_is_prepared_again(
    cluster: Cluster, team: Namespace
) -> None:
    node = cluster.node(NODE)
    names = ("crashes", "loses-sandbox")
    await team.create(*(lasting(name) for name in names))
    await asyncio.gather(*(team.runs(name) for name in names))
    files = {file: (node.cdi_dir / file).stat() for file in specifications(node)}
    lost = await team.client.get(PODS, "loses-sandbox", team.name)

    touch(cluster, team, "crashes", "/tmp/crash")
    processes.kill(sandbox(node, lost.metadata.uid))

    await asyncio.gather(*(restarted(team, name) for name in names))
    for name in names:
        assert devices_seen(cluster, team, name) == await device_of(team, name)
        assert calls(cluster, NODE, PREPARED).count(await uid_of(team, name)) == 1
    assert {file: (node.cdi_dir / file).stat() for file in specifications(node)} == files


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("parley-kubelet", "stop"),
        ("parley-kubelet", "kill"),
        ("kubelet", "kill"),
        ("containerd", "kill"),
    ],
)
async def test_a_running_pod_keeps_container_and_device_while_a_program_of_its_node_restarts(
    cluster: Cluster, team: Namespace, program: str, ending: str
) -> None:
    node, component = cluster.node(NODE), cluster.component(f"{program}-{NODE}")
    await team.create(lasting("runs-on"))
    await team.runs("runs-on")
    held = prepared(node), specifications(node)
    container = (await status(team, "runs-on"))["containerID"]
    registered = registrations(cluster, NODE)

    getattr(component, ending)()
    component.start()

    if program != "containerd":
        wait_for_registration(cluster, NODE, times=registered + 1)
    await team.create(lasting("next"))
    await team.runs("next")
    now = await status(team, "runs-on")
    assert (now["containerID"], now["restartCount"]) == (container, 0)
    uid = await uid_of(team, "runs-on")
    assert prepared(node)[uid] == held[0][uid]
    assert set(held[1]) < set(specifications(node))
    touch(cluster, team, "runs-on", "/tmp/crash")
    await restarted(team, "runs-on")
    assert devices_seen(cluster, team, "runs-on") == await device_of(team, "runs-on") == sorted(held[0][uid])
    assert calls(cluster, NODE, PREPARED).count(uid) == 1
    await team.delete(PODS, "runs-on")
    assert prepared(node).keys() == {await uid_of(team, "next")}


async def test_pods_that_are_deleted_while_their_plugin_is_away_are_unprepared_when_it_is_back(
    cluster: Cluster, team: Namespace
) -> None:
    names = {"node-a": "stopped-plugin", "node-b": "killed-plugin"}
    await team.create(*(lasting(name, node) for node, name in names.items()))
    await asyncio.gather(*(team.runs(name) for name in names.values()))
    uids = {node: await uid_of(team, name) for node, name in names.items()}
    with (
        own_plugin(cluster, cluster.node("node-a")) as first,
        own_plugin(cluster, cluster.node("node-b")) as second,
    ):
        first.stop()
        second.kill()

        for name in names.values():
            await team.client.delete(PODS, name, team.name)
        for name in names.values():
            await status(team, name, lambda one: "terminated" in one["state"], "has ended")

        assert {node.name: set(prepared(node)) for node in cluster.nodes} == {n: {u} for n, u in uids.items()}
    await asyncio.gather(*(team.gone(PODS, name) for name in names.values()))
    for node in cluster.nodes:
        assert prepared(node) == {}
        assert calls(cluster, node.name, UNPREPARED).count(uids[node.name]) == 1
