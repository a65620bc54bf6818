"""Two plugins of one driver run on a node for a while, as in a rolling update of the DaemonSet, and back."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from tests.cluster.containers import LOOK, devices_seen, status
from tests.cluster.manifests import UNTIL_FINISHED, pod
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import offered, own_plugin, plugin, start
from tests.cluster.nodes import PREPARED, UNPREPARED, calls, prepared

from parley.api.resources import PODS
from parley_devcluster import Cluster
from parley_devcluster.component import Component
from parley_devcluster.parley import NODE_PLUGIN

pytestmark = pytest.mark.cluster

NODE = "node-b"
ADDED = "added"


class Pods:
    """Pods with a device on the node, and which plugin did what for them."""

    def __init__(self, cluster: Cluster, team: Namespace) -> None:
        self._cluster = cluster
        self._team = team
        self._claims: dict[str, str] = {}
        self._containers: dict[str, str] = {}

    async def run(self, name: str) -> None:
        """Return when it runs and sees its device."""
        where = {"kubernetes.io/hostname": NODE}
        await self._team.create(
            pod(name, templates={"gpu": "one"}, script=LOOK + UNTIL_FINISHED, nodeSelector=where)
        )
        await self._team.runs(name)
        (mirror,) = await self._team.mirrors(name)
        self._claims[name] = mirror.metadata.uid
        self._containers[name] = (await status(self._team, name))["containerID"]
        held = sorted(device.device for device in await self._team.devices(name))
        assert devices_seen(self._cluster, self._team, name) == held

    async def delete(self, name: str) -> None:
        """Return when its object is gone, and with it what was prepared."""
        await self._team.delete(PODS, name)
        assert self._claims[name] not in prepared(self._cluster.node(NODE))

    async def undisturbed(self, name: str) -> None:
        """Assert that it runs in the container in which it ran first."""
        now = await status(self._team, name)
        assert (now["containerID"], now["restartCount"]) == (self._containers[name], 0)
        assert "running" in now["state"]

    def prepared_by(self, name: str) -> list[str]:
        """The plugins that prepared its claim, once for each time."""
        return self._did(PREPARED, name)

    def unprepared_by(self, name: str) -> list[str]:
        return self._did(UNPREPARED, name)

    def _did(self, event: str, name: str) -> list[str]:
        uid = self._claims[name]
        return [
            program
            for program in (NODE_PLUGIN, ADDED)
            for _ in range(calls(self._cluster, NODE, event, program=program).count(uid))
        ]


@pytest.fixture
async def own(cluster: Cluster, team: Namespace) -> AsyncIterator[Component]:
    """The node's own plugin, which runs after the test, too."""
    with own_plugin(cluster, cluster.node(NODE)) as component:
        yield component


async def test_a_newer_plugin_takes_over_from_the_older_one_without_a_pod_that_notices(
    cluster: Cluster, team: Namespace, own: Component, device_files: Mapping[str, Path]
) -> None:
    pods = Pods(cluster, team)
    await pods.run("old")
    with plugin(cluster, cluster.node(NODE), ADDED, device_files[NODE], pod_uid="newer"):
        await pods.undisturbed("old")
        await pods.run("young")
        assert (pods.prepared_by("old"), pods.prepared_by("young")) == ([NODE_PLUGIN], [ADDED])
        await pods.delete("old")
        assert pods.unprepared_by("old") == [ADDED]

        own.stop()

        await pods.run("late")
        assert pods.prepared_by("late") == [ADDED]
        await offered(team.client, NODE, ["b-0", "b-1"])
        await pods.undisturbed("young")
        start(cluster, cluster.node(NODE), own)
    await pods.undisturbed("young")
    for name in ("young", "late"):
        await pods.delete(name)
        assert pods.unprepared_by(name) == [NODE_PLUGIN]


async def test_an_older_plugin_serves_on_when_the_newer_one_is_taken_back(
    cluster: Cluster, team: Namespace, own: Component, device_files: Mapping[str, Path]
) -> None:
    pods = Pods(cluster, team)
    await pods.run("old")
    with plugin(cluster, cluster.node(NODE), ADDED, device_files[NODE], pod_uid="withdrawn") as newer:
        await pods.run("young")
        assert pods.prepared_by("young") == [ADDED]

        newer.stop()

    for name in ("old", "young"):
        await pods.undisturbed(name)
    await pods.delete("young")
    assert pods.unprepared_by("young") == [NODE_PLUGIN]
    await pods.run("late")
    assert pods.prepared_by("late") == [NODE_PLUGIN]
    await offered(team.client, NODE, ["b-0", "b-1"])
    await pods.delete("old")
    assert (pods.prepared_by("old"), pods.unprepared_by("old")) == ([NODE_PLUGIN], [NODE_PLUGIN])
