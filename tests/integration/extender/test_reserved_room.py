"""Room that is reserved for the users of a claim, and all pods of the second scheduler, as it is shipped."""

import pytest
from tests.cluster.manifests import claim, resource_class, workspace_disk
from tests.cluster.namespace import Namespace
from tests.integration.extender.conftest import CPUS, parley_pod

from parley.api import reasons
from parley.api.resources import CLAIMS
from parley.drivers.workspace import WorkspaceDriver

pytestmark = pytest.mark.cluster

ON_NODE_0 = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}


async def test_pods_without_claims_are_kept_out_until_the_claim_has_ended(team: Namespace) -> None:
    most = {"maxReserve": {"cpu": str(CPUS)}}
    build = claim("build", "builds", size="1Mi", reserve={"cpu": str(CPUS - 8)})
    build["spec"]["allocationMode"] = "Immediate"
    await team.create(
        workspace_disk("node-0"), resource_class("builds", WorkspaceDriver.name, parameters=most), build
    )
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
