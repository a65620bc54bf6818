"""A node plugin in wrong hands, with the token that its pod has: it speaks for its own node and for no other."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cluster.manifests import pod, resource_slice, template
from tests.cluster.namespace import Namespace
from tests.cluster.patience import patient
from tests.cluster.raw import raw
from tests.integration.native.conftest import Devices

from parley.api.resources import PODS, RESOURCE_SLICES
from parley.kube.client import Client
from parley.sdk import Device
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN

pytestmark = pytest.mark.cluster


@pytest.fixture
async def plugin(cluster: Cluster, admin: Client, tmp_path: Path) -> AsyncIterator[Client]:
    """The API server as the node plugin on node-1 sees it."""
    spec = {
        "nodeName": "node-1",
        "serviceAccountName": NODE_PLUGIN,
        "containers": [{"name": "plugin", "image": "none"}],
    }
    made = await admin.create(PODS, {"metadata": {"name": "hostile-plugin"}, "spec": spec}, NAMESPACE)
    bound = {"apiVersion": "v1", "kind": "Pod", "name": made.metadata.name, "uid": made.metadata.uid}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NODE_PLUGIN}/token"
    document = json.loads(cluster.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN).read_text())
    document["users"][0]["user"]["token"] = raw(cluster).post(path, request)["status"]["token"]
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    async with patient(tmp_path / "kubeconfig") as client:
        yield client
    await admin.delete(PODS, made.metadata.name, NAMESPACE, grace_period_seconds=0)


async def test_a_slice_of_another_nodes_pool_harms_nobody(
    team: Namespace, devices: Devices, plugin: Client
) -> None:
    await devices(node_0=1)
    false = resource_slice("node-1", ["gpu-0"])
    false["spec"]["pool"] = {"name": "node-0", "generation": 9, "resourceSliceCount": 1}
    await plugin.create(RESOURCE_SLICES, {**false, "metadata": {"name": "false"}})
    await team.create(template("one"), pod("first", templates={"gpu": "one"}))
    await team.bound("first")
    await plugin.delete(RESOURCE_SLICES, "false")
    await team.delete(PODS, "first")
    await team.create(pod("second", templates={"gpu": "one"}))

    await team.bound("second")

    assert (await team.pod("second", lambda _: True, "is there")).spec.node_name == "node-0"
    assert await team.devices("second") == {Device("node-0", "gpu-0")}
