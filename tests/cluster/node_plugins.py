"""Further node plugins on a real node, and pods whose claims nobody negotiates: the test itself allocates, as a
controller would."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from tests.cluster.manifests import DRIVER, Manifest
from tests.cluster.namespace import Namespace
from tests.cluster.nodes import registrations, wait_for_registration
from tests.cluster.watching import until

from parley.api.names import DEVICE_CLASS, GROUP, SHAREABLE_REQUEST
from parley.api.resources import BUILTIN_CLAIMS, PODS, RESOURCE_SLICES
from parley.drivers.workspace import WorkspaceDriver
from parley.kube.client import Client
from parley_devcluster import Cluster
from parley_devcluster.component import Component
from parley_devcluster.layout import Node
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN

SCRATCH: Final = "scratch.example.com"
SCRATCH_DRIVER: Final = ("--driver", "scratch_node:ScratchNode")

_PYTHON: Final = (sys.executable, "-m", "parley_kubelet")
_ROOT: Final = Path(__file__).parents[2]
_STOPS: Final = 20


@contextmanager
def plugin(
    cluster: Cluster,
    node: Node,
    name: str,
    configuration: Path,
    *options: str,
    state: Path | None = None,
    python: Sequence[str] = _PYTHON,
    pod_uid: str = "",
) -> Iterator[Component]:
    """A further plugin program on the node, named `<name>-<node>`, with the account of Parley's own; the kubelet
    has taken it when the block begins.

    `state` is its state folder, Parley's own if not given; `python` how it is started.
    """
    may_publish(cluster)
    known = f"{name}-{node.name}" in cluster.component_names
    before = registrations(cluster, node.name, program=name) if known else 0
    arguments = {
        "kubeconfig": cluster.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node=node.name),
        "node-name": node.name,
        "config": configuration,
        "plugins-dir": node.plugins_dir,
        "plugins-registry-dir": node.plugins_registry_dir,
        "cdi-dir": node.cdi_dir,
        "state-dir": state or node.parley_dir,
    }
    command = [*python, *options, *(f"--{option}={value}" for option, value in arguments.items())]
    modules = (str(_ROOT), str(_ROOT / "examples" / "scratch"), os.environ.get("PYTHONPATH"))
    path = os.pathsep.join(filter(None, modules))
    environment = {"PYTHONPATH": path, "POD_UID": pod_uid}
    component = cluster.add_program(f"{name}-{node.name}", command, environment=environment)
    try:
        taken = before + max(1, options.count("--driver"))
        wait_for_registration(cluster, node.name, program=name, times=taken)
        yield component
    finally:
        component.stop(limit=_STOPS)
    assert "Forbidden" not in component.log.read_text()


def may_publish(cluster: Cluster) -> None:
    """Parley's own account of node plugins speaks for all drivers."""
    name = f"{NODE_PLUGIN}-drivers"
    rule = {"apiGroups": [GROUP], "resources": ["resourceclaims/driver"], "verbs": ["publish"]}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": NODE_PLUGIN, "namespace": NAMESPACE}
    objects = [
        {**rbac, "kind": "ClusterRole", "rules": [rule]},
        {**rbac, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    ]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


@contextmanager
def own_plugin(cluster: Cluster, node: Node) -> Iterator[Component]:
    """The node's own plugin, which may be stopped and started within the block and runs after it."""
    own = cluster.component(f"{NODE_PLUGIN}-{node.name}")
    try:
        yield own
    finally:
        if not own.running:
            start(cluster, node, own)


def start(cluster: Cluster, node: Node, own: Component) -> None:
    """Start the node's own plugin, and return when the kubelet has taken it."""
    before = registrations(cluster, node.name)
    own.start()
    wait_for_registration(cluster, node.name, times=before + 1)


@contextmanager
def workspace_plugins(cluster: Cluster, folder: Path) -> Iterator[None]:
    """A plugin on each node serves workspaces: `folder` has `NODE/root` and `NODE/state` for each of them."""
    with ExitStack() as plugins:
        for node in cluster.nodes:
            own, file = folder / node.name, folder / f"{node.name}.yaml"
            settings = {"root": str(own / "root"), "size": "10Gi"}
            file.write_text(yaml.safe_dump({"drivers": {WorkspaceDriver.name: settings}}))
            options = ("--driver", "workspaces")
            plugins.enter_context(plugin(cluster, node, "shelf", file, *options, state=own / "state"))
        yield


def scratch_settings(folder: Path) -> Mapping[str, Any]:
    """The example driver's part of a configuration file."""
    return {SCRATCH: {"folder": str(folder), "sizeMiB": 100}}


async def offered(client: Client, node: str, devices: list[str], driver: str = DRIVER) -> None:
    """Return when the node publishes these devices and no others."""
    await until(
        client,
        RESOURCE_SLICES,
        lambda slices: [d.name for slice_ in slices.values() for d in slice_.spec.devices] == devices,
        f"{node} publishes {devices}",
        field_selector=f"spec.nodeName={node},spec.driver={driver}",
    )


async def allocated(
    team: Namespace, name: str, node: str, driver: str, device: str, handle: Mapping[str, Any], *pods: Manifest
) -> str:
    """A claim with that device of the node, as Parley allocates it for these new pods; returns its UID. Without a
    driver in the controller, and a claim of Parley's: it stays allocated as long as pods use it."""
    request = {"name": SHAREABLE_REQUEST, "exactly": {"deviceClassName": DEVICE_CLASS}}
    body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    made = await team.client.create(BUILTIN_CLAIMS, body, team.name)
    await team.create(*pods)
    names = [manifest["metadata"]["name"] for manifest in pods]
    users = [(await team.client.get(PODS, name, team.name)).metadata for name in names]
    result = {"request": SHAREABLE_REQUEST, "driver": driver, "pool": node, "device": device}
    opaque = {"source": "FromClaim", "opaque": {"driver": driver, "parameters": dict(handle)}}
    named = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": [result], "config": [opaque]},
        "allocationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),  # PreBind can't add it later
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [named]}]},
    }
    reserved = [{"resource": "pods", "name": user.name, "uid": user.uid} for user in users]
    status = {"status": {"allocation": allocation, "reservedFor": reserved}}
    await team.client.patch(BUILTIN_CLAIMS, name, status, team.name, subresource="status")
    return made.metadata.uid
