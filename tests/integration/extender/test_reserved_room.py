"""Room that is reserved for the users of a claim, and all pods of the second scheduler, as it is shipped."""

import pytest
from tests.cluster.manifests import Manifest, claim, resource_class
from tests.cluster.namespace import Namespace
from tests.integration.extender.conftest import CPUS, parley_pod

from parley.api import reasons
from parley.api.resources import CLAIMS
from parley.drivers.workspace import DISK, WorkspaceDriver

pytestmark = pytest.mark.cluster

ON_NODE_0 = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}


def disk(node: str) -> Manifest:
    device = {"name": DISK, "capacity": {"size": {"value": "10Gi"}}}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-disk"},
        "spec": {"driver": WorkspaceDriver.name, "nodeName": node, "pool": pool, "devices": [device]},
    }


async def test_pods_without_claims_are_kept_out_until_the_claim_has_ended(team: Namespace) -> None:
    most = {"maxReserve": {"cpu": str(CPUS)}}
    build = claim("build", "builds", size="1Mi", reserve={"cpu": str(CPUS - 8)})
    build["spec"]["allocationMode"] = "Immediate"
    await team.create(disk("node-0"), resource_class("builds", WorkspaceDriver.name, parameters=most), build)
    await team.parley_claim("build", lambda c: c.status.allocation is not None, "is allocated")

    names = [f"plain-{number}" for number in range(6)]
    await team.create(*(parley_pod(name, cpu="4", **ON_NODE_0) for name in names))
    await team.pods(lambda pods: sum(bool(pod.spec.node_name) for pod in pods) == 2, "two of them are bound")
    waiting = [pod.metadata.name for pod in await team.pods(bool, "are there") if not pod.spec.node_name]
    notes = [await team.told(name, reasons.NO_CANDIDATES) for name in waiting]
    assert all(f"{CPUS - 8} cpu are reserved for claim {team.name}/build" in note for note in notes)

    await team.delete(CLAIMS, "build")
    for name in waiting:
        assert (await team.bound(name)).spec.node_name == "node-0"
