"""The kubelet finds the plugin by a socket in a folder, and may lose it."""

import pytest
from tests.cluster.manifests import pod
from tests.cluster.namespace import Namespace
from tests.cluster.nodes import prepared, registrations, wait_for_registration

from parley.api.resources import PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

NODE = "node-b"


async def test_a_plugin_whose_sockets_somebody_removed_is_registered_again_and_knows_its_claims(
    cluster: Cluster, team: Namespace
) -> None:
    node = cluster.node(NODE)
    where = {"kubernetes.io/hostname": NODE}
    await team.create(pod("before", templates={"gpu": "one"}, nodeSelector=where))
    await team.runs("before")
    held, registered = prepared(node), registrations(cluster, NODE)

    (node.plugins_registry_dir / "device.parley.dev-reg.sock").unlink()
    (node.plugins_dir / "device.parley.dev" / "dra.sock").unlink()

    wait_for_registration(cluster, NODE, times=registered + 1)
    await team.create(pod("after", templates={"gpu": "one"}, nodeSelector=where))
    await team.runs("after")
    assert prepared(node).items() > held.items()
    await team.delete(PODS, "before")
    assert not prepared(node).keys() & held.keys()
