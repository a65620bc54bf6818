"""The objects of a cluster of two nodes in which all is well with Parley."""

from datetime import UTC, datetime
from typing import Any

from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import CLASSES, LEASES, NODES, PODS, RESOURCE_SLICES, SERVER_VERSION, Resource
from parley.doctor import installed, kinds
from parley.kube.client import Client

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SYSTEM = "parley-system"
NODE_NAMES = ("node-1", "node-2")
Body = dict[str, Any]

_BASE: dict[str, Resource[Any]] = {
    "ValidatingAdmissionPolicy": kinds.POLICIES,
    "ValidatingAdmissionPolicyBinding": kinds.POLICY_BINDINGS,
    "ClusterRole": kinds.CLUSTER_ROLES,
    "ClusterRoleBinding": kinds.CLUSTER_ROLE_BINDINGS,
    "Role": kinds.ROLES,
    "RoleBinding": kinds.ROLE_BINDINGS,
    "ServiceAccount": kinds.ACCOUNTS,
    "FlowSchema": kinds.FLOW_SCHEMAS,
}


async def fill(client: Client) -> None:
    """Make all of them."""
    await client.create(SERVER_VERSION, {"metadata": {"name": "version"}, "gitVersion": "v1.37.0"})
    for crd in installed.crds().values():
        status = {
            "storedVersions": ["v1alpha1"],
            "conditions": [{"type": "Established", "status": "True"}],
        }
        await client.create(kinds.CRDS, {**crd, "status": status})
    for kind_name, resource in _BASE.items():
        for body in installed.of_kind(kind_name).values():
            await client.create(resource, body, SYSTEM if resource.namespaced else None)
    await _programs(client)
    for name in NODE_NAMES:
        await _node(client, name)
    await client.create(CLASSES, {"metadata": {"name": "gpu"}, "driverName": "device.parley.dev"})


async def _programs(client: Client) -> None:
    controller = _workload("parley-controller", ["parley", "controller"])
    deployment = {**controller, "status": {"readyReplicas": 2}}
    deployment["spec"]["replicas"] = 2
    await client.create(kinds.DEPLOYMENTS, deployment, SYSTEM)
    for name in ("parley-controller-a", "parley-controller-b"):
        await create_pod(client, name, "parley-controller", "node-1")
    spec = {
        "holderIdentity": "parley-controller-a_1",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T11:59:58Z",
    }
    await client.create(LEASES, {"metadata": {"name": "parley-controller"}, "spec": spec}, SYSTEM)
    plugin = _workload("parley-kubelet", ["parley-kubelet"])
    pod = plugin["spec"]["template"]["spec"]
    pod["volumes"] = [
        {"name": "driver", "hostPath": {"path": "/var/lib/kubelet/plugins/device.parley.dev"}},
        {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry", "type": "Directory"}},
        {"name": "cdi", "hostPath": {"path": "/var/run/cdi"}},
    ]
    pod["containers"][0]["volumeMounts"] = [
        {"name": "driver", "mountPath": "/var/lib/kubelet/plugins/device.parley.dev"},
        {"name": "registry", "mountPath": "/var/lib/kubelet/plugins_registry"},
        {"name": "cdi", "mountPath": "/var/run/cdi"},
    ]
    counts = {"desiredNumberScheduled": 2, "numberReady": 2}
    await client.create(kinds.DAEMON_SETS, {**plugin, "status": counts}, SYSTEM)


def _workload(name: str, command: list[str]) -> Body:
    labels = {"app.kubernetes.io/name": name}
    pod = {"containers": [{"name": "main", "command": command}]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


async def create_pod(client: Client, name: str, app: str, node: str) -> None:
    """A pod that is ready."""
    meta = {"name": name, "labels": {"app.kubernetes.io/name": app}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "parley"}]}
    await client.create(PODS, {"metadata": meta, "spec": spec}, SYSTEM)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch(PODS, name, {"status": status}, SYSTEM, subresource="status")


async def _node(client: Client, name: str) -> None:
    info = {"kubeletVersion": "v1.37.0", "containerRuntimeVersion": "containerd://2.1.4"}
    status = {"nodeInfo": info, "conditions": [{"type": "Ready", "status": "True"}]}
    await client.create(NODES, {"metadata": {"name": name}, "status": status})
    await client.patch(NODES.untyped(), name, {"status": status}, subresource="status")
    await create_pod(client, f"parley-kubelet-{name}", "parley-kubelet", name)
    spec = {
        "driver": "device.parley.dev",
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    metadata = {"name": f"{name}-devices", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}}
    await client.create(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})
