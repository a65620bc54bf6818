"""The second scheduler in a local cluster, as a process with the shipped configuration and permissions.

The configuration differs only in the kubeconfig and in the address at which the controller serves the extender's
verbs. The scheduler has its own service account, as it has when it is a Deployment of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from parley_devcluster import machine
from parley_devcluster.cluster import Cluster
from parley_devcluster.component import Component
from parley_devcluster.startup import ClusterError

SECOND_SCHEDULER = "parley-scheduler"
"""The name of the component, its account and its lease."""

SCHEDULER_NAME = "parley"
"""The `schedulerName` of its pods."""

_NAMESPACE = "parley-system"


def free_address() -> str:
    """`127.0.0.1:<port>` with a port that is free now, for the controller's `--extender-address`."""
    (port,) = machine.free_ports(1)
    return f"127.0.0.1:{port}"


def grant(cluster: Cluster, deploy: Path) -> None:
    """Apply the permissions that the extender path needs; `deploy` is the folder with Parley's manifests."""
    folder = _shipped(deploy) / "permissions"
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))


def start_second_scheduler(
    cluster: Cluster, deploy: Path, address: str, name: str = SECOND_SCHEDULER
) -> Component:
    """Start the second scheduler as a component of that name, which calls the extender at `address`.

    Call `grant` first. When this returns, the scheduler serves requests; it becomes leader a moment later.
    """
    account = cluster.kubeconfig_for_service_account(_NAMESPACE, SECOND_SCHEDULER)
    return cluster.add_scheduler(name, configuration(deploy, account, address))


def configuration(deploy: Path, kubeconfig: Path, address: str) -> dict[str, Any]:
    """The shipped KubeSchedulerConfiguration with this kubeconfig and extender address."""
    shipped: dict[str, Any] = yaml.safe_load((_shipped(deploy) / "scheduler.yaml").read_text())
    return {
        **shipped,
        "clientConnection": {**shipped["clientConnection"], "kubeconfig": str(kubeconfig)},
        "extenders": [{**entry, "urlPrefix": f"http://{address}"} for entry in shipped["extenders"]],
    }


def _shipped(deploy: Path) -> Path:
    folder = deploy / "extender"
    if not folder.is_dir():
        raise ClusterError(f"{deploy} has no folder 'extender': name the folder that holds Parley's manifests")
    return folder
