"""A pod with a volume that one node has, under the real scheduler: its claim is allocated there at once."""

import pytest
from tests.cluster.manifests import Manifest, pod, template
from tests.cluster.namespace import Namespace
from tests.cluster.watching import until_one
from tests.integration.native.conftest import Devices, Parley

from parley.api.resources import VOLUME_CLAIMS

pytestmark = pytest.mark.cluster

SIZE = {"storage": "1Mi"}
MODES = ["ReadWriteOnce"]


def volume(team: Namespace, node: str) -> Manifest:
    """A directory of the node, for the claim `data` of the namespace."""
    expressions = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{team.name}-disk"},
        "spec": {
            "capacity": SIZE,
            "accessModes": MODES,
            "storageClassName": "",
            "local": {"path": "/tmp"},
            "claimRef": {"namespace": team.name, "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
        },
    }


def volume_claim(team: Namespace) -> Manifest:
    spec = {"accessModes": MODES, "storageClassName": "", "volumeName": f"{team.name}-disk"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {**spec, "resources": {"requests": SIZE}},
    }


async def test_a_claim_is_allocated_where_the_pods_volume_is(
    team: Namespace, devices: Devices, parley: Parley
) -> None:
    await devices(node_0=1, node_1=1, node_2=1)
    await team.create(volume(team, "node-2"), volume_claim(team), template("one"))
    bound = "the volume is bound"
    await until_one(team.client, VOLUME_CLAIMS, "data", lambda one: bool(one.bound_to), bound, namespace=team.name)
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    await team.create(pod("task", templates={"gpu": "one"}, volumes=[data]))
    assert (await team.bound("task")).spec.node_name == "node-2"
    scheduling = await team.scheduling("task", lambda one: one.spec.selected_node == "node-2", "was placed")
    assert scheduling.spec.round == 1
    assert scheduling.status.claims[0].viable_nodes == ("node-2",)
