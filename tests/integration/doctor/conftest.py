"""A real control plane with what Parley installs, two nodes without kubelets, and the Lease of a leader."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from tests.cluster.starting import DEPLOY, directory, fake_nodes, require_machine

from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE, install

NODE_INFO = {"kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2.1.4"}


@pytest.fixture(scope="module")
def plane() -> Iterator[Cluster]:
    """Of these tests alone: elsewhere others leave objects behind, or hold Leases of drivers."""
    require_machine(real_nodes=False)
    with directory() as place, Cluster.start(place, node_lifecycle=False) as cluster:
        install(cluster, DEPLOY)
        yield cluster


@pytest.fixture
def cluster(plane: Cluster) -> Iterator[Cluster]:
    """All is well in it at the start of each test."""
    install(plane, DEPLOY)
    with fake_nodes(plane, 2, prefix="node-") as names:
        for name in names:
            status = orjson.dumps({"status": {"nodeInfo": NODE_INFO}}).decode()
            plane.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
            apply(plane, resource_slice(name))
        apply(plane, {**RESOURCE_CLASS, "driverName": "device.parley.dev"}, lease())
        yield plane
        plane.kubectl("delete", "resourceslices,prclasses,validatingadmissionpolicies", "--all")
        plane.kubectl("delete", "deployments,leases", "--all", "-n", NAMESPACE)


RESOURCE_CLASS = {
    "apiVersion": "parley.dev/v1alpha1",
    "kind": "ResourceClass",
    "metadata": {"name": "gpu"},
}


def lease() -> dict[str, Any]:
    """Renewed now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "somebody_1", "leaseDurationSeconds": 600, "renewTime": now}
    meta = {"name": "parley-controller", "namespace": NAMESPACE}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def resource_slice(node: str) -> dict[str, Any]:
    """With one device."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "device.parley.dev", "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    meta = {"name": f"{node}-devices"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}


def apply(cluster: Cluster, *objects: Any) -> None:
    """As a user would."""
    items = orjson.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}).decode()
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=items)
