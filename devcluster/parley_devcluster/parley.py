"""Runs Parley in a local cluster with the manifests, accounts and programs of a user's installation.

Only the workloads differ. There are no container images here: the controller and each node's plugin are child
processes with the service accounts' tokens, a plugin's bound to its node. The kustomization `deploy/devcluster`
has everything except the workloads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from parley_devcluster.cluster import Cluster
from parley_devcluster.layout import Node
from parley_devcluster.second_scheduler import SCHEDULER_NAME, grant, start_second_scheduler
from parley_devcluster.startup import ClusterError

NAMESPACE = "parley-system"
CONTROLLER = "parley-controller"
NODE_PLUGIN = "parley-kubelet"

_CONTROLLER_PROGRAM = (sys.executable, "-m", "parley", "controller")
_NODE_PROGRAM = (sys.executable, "-m", "parley_kubelet")


def run_parley(
    cluster: Cluster,
    *,
    deploy: Path,
    devices: Mapping[str, Path] | None = None,
    controller: Sequence[str] = _CONTROLLER_PROGRAM,
    node_plugin: Sequence[str] = _NODE_PROGRAM,
    controller_arguments: Sequence[str] = (),
    node_arguments: Sequence[str] = (),
    extender: str = "",
) -> None:
    """Install Parley's objects and start the controller and one node plugin per real node.

    With `extender`, an address (`second_scheduler.free_address()`), a second scheduler runs too, for pods with
    `schedulerName: parley`, and the controller serves its extender at this address.

    `deploy` is the folder that has `devcluster/kustomization.yaml`; `devices` maps each real node to its device
    configuration file. The components are called `parley-controller` and `parley-kubelet-<node>`; they are
    restarted and killed like all others. Raises `ClusterError` if a manifest is refused or a node has no file.
    """
    install(cluster, deploy)
    files = {node.name: _devices_of(node, devices or {}) for node in cluster.nodes}
    account = cluster.kubeconfig_for_service_account(NAMESPACE, CONTROLLER)
    options = _extender(cluster, deploy, extender) if extender else ()
    identity = ("--identity", CONTROLLER, "--one-at-a-time")
    cluster.add_program(
        CONTROLLER, [*controller, "--kubeconfig", str(account), *identity, *options, *controller_arguments]
    )
    for node in cluster.nodes:
        account = cluster.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node=node.name)
        arguments = node_plugin_arguments(node, account, files[node.name])
        cluster.add_program(f"{NODE_PLUGIN}-{node.name}", [*node_plugin, *arguments, *node_arguments])


def wait_for_devices(cluster: Cluster, limit: float = 60.0) -> None:
    """Wait until each real node's plugin has published its ResourceSlices. Raises `ClusterError` after `limit`
    seconds."""
    deadline = time.monotonic() + limit
    while missing := {node.name for node in cluster.nodes} - _published(cluster):
        if time.monotonic() > deadline:
            names = ", ".join(sorted(missing))
            raise ClusterError(
                f"no ResourceSlice of {names} after {limit:g} s: see the logs in {cluster.directory}"
            )
        time.sleep(0.2)


def _published(cluster: Cluster) -> set[str]:
    return set(cluster.kubectl("get", "resourceslices", "-o", "jsonpath={.items[*].spec.nodeName}").split())


def install(cluster: Cluster, deploy: Path) -> None:
    """Apply the manifests and wait until the API server serves the new kinds."""
    folder = deploy / "devcluster"
    if not folder.is_dir():
        raise ClusterError(f"{deploy} has no folder 'devcluster': name the folder that holds Parley's manifests")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    if cluster.kubectl("get", "customresourcedefinitions", "--output=name").strip():
        wait = ("wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinitions", "--all")
        cluster.kubectl(*wait)


def _extender(cluster: Cluster, deploy: Path, address: str) -> Sequence[str]:
    """Start the second scheduler; returns the controller's options for serving it."""
    grant(cluster, deploy)
    start_second_scheduler(cluster, deploy, address)
    return ("--extender-address", address, "--scheduler-name", SCHEDULER_NAME)


def node_plugin_arguments(node: Node, kubeconfig: Path, devices: Path) -> list[str]:
    """The arguments of one node's plugin."""
    return [
        *("--kubeconfig", str(kubeconfig)),
        *("--node-name", node.name),
        *("--config", str(devices)),
        *("--plugins-dir", str(node.plugins_dir)),
        *("--plugins-registry-dir", str(node.plugins_registry_dir)),
        *("--cdi-dir", str(node.cdi_dir)),
        *("--state-dir", str(node.parley_dir)),
    ]


def reads_devices(cluster: Cluster, node: str, file: Path) -> bool:
    """Whether the plugin of that node was started with this device configuration file."""
    return str(file.resolve()) in cluster.component(f"{NODE_PLUGIN}-{node}").argv


def _devices_of(node: Node, devices: Mapping[str, Path]) -> Path:
    try:
        return devices[node.name].resolve(strict=True)
    except KeyError:
        raise ClusterError(f"node {node.name!r} has no device configuration file: give it in `devices`") from None
    except FileNotFoundError:
        path = devices[node.name]
        raise ClusterError(f"node {node.name!r}: its device configuration file {path} does not exist") from None
