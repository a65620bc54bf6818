"""Plans a cluster's layout and writes all files that its components read, before the first of them starts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from parley_devcluster import kubeconfig, machine, node_files
from parley_devcluster.certificates import Authority
from parley_devcluster.control_plane import (
    ETCD,
    SCHEDULER,
    SERVING,
    USERS,
    scheduler_configuration,
    scheduler_file,
)
from parley_devcluster.debian import BUSYBOX
from parley_devcluster.images import archive, busybox_images
from parley_devcluster.layout import Layout, Node, NodeOptions, Ports, check, scope

IMAGES = "images.tar"
MARKER = ".parley-devcluster"  # marks the directories of clusters, which may be deleted
_CONTROL_PLANE_PORTS = len(fields(Ports))


def plan(
    directory: Path,
    version: str,
    nodes: Sequence[NodeOptions],
    *,
    node_lifecycle: bool,
    service_accounts: bool,
    scheduler_config: Mapping[str, Any],
) -> Layout:
    """A layout with ports and subnets that are free now; raises `LayoutError` for invalid arguments."""
    check(directory, nodes)
    ports = machine.free_ports(_CONTROL_PLANE_PORTS + 2 * len(nodes))
    taken = machine.routes()
    planned = []
    for index, options in enumerate(nodes):
        name = scope(directory, options.name)
        subnet = machine.free_subnet(name, taken)
        taken.append(machine.network(subnet))
        port, healthz = ports[_CONTROL_PLANE_PORTS + 2 * index :][:2]
        planned.append(Node(options, directory / options.name, name, subnet, port, healthz))
    return Layout(
        directory,
        version,
        Ports(*ports[:_CONTROL_PLANE_PORTS]),
        tuple(planned),
        node_lifecycle,
        service_accounts,
        dict(scheduler_config),
    )


def write_control_plane(layout: Layout, now: datetime) -> None:
    """Write certificates, kubeconfigs and the scheduler's configuration."""
    authority = Authority.create(layout.pki, now)
    Authority.create(layout.pki / ETCD, now).peer(ETCD, ["127.0.0.1", "localhost"], now)
    authority.serving(SERVING, ["127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1"], now)
    for name, (user, groups) in USERS.items():
        pair = authority.client(name, user, groups, now)
        document = kubeconfig.with_certificate(layout.server, authority.pair.certificate, pair)
        kubeconfig.write(layout.kubeconfigs / name, document)
    kubeconfig.write(layout.admin_kubeconfig, json.loads((layout.kubeconfigs / "admin").read_text()))
    write_scheduler(layout, SCHEDULER, layout.scheduler_config)


def write_scheduler(layout: Layout, name: str, own: Mapping[str, Any]) -> None:
    """Write a scheduler's configuration file, as JSON, which is YAML."""
    scheduler_file(layout, name).write_text(json.dumps(scheduler_configuration(layout, own), indent=2))


def write_node(layout: Layout, node: Node, now: datetime) -> None:
    """Create a node's folders, certificates and configuration files."""
    for folder in (node.plugins_dir, node.plugins_registry_dir, node.cdi_dir, node.pod_logs_dir, node.parley_dir):
        folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(layout.pki)
    pair = authority.client(node.kubelet, f"system:node:{node.name}", ["system:nodes"], now)
    authority.serving(f"{node.name}-serving", [node.address, node.name], now)
    document = kubeconfig.with_certificate(layout.server, authority.pair.certificate, pair)
    kubeconfig.write(layout.kubeconfigs / node.kubelet, document)
    settings = json.dumps(node_files.kubelet_configuration(layout, node), indent=2)
    (node.folder / "kubelet.yaml").write_text(settings)
    restrict = machine.lacks_sys_resource()
    toml = node_files.containerd_configuration(node, restrict_oom_score=restrict)
    (node.folder / "containerd.toml").write_text(toml)
    networks = node.folder / "cni" / "net.d"
    networks.mkdir(parents=True, exist_ok=True)
    (networks / "10-parley.conflist").write_text(json.dumps(node_files.network_configuration(node), indent=2))


def write_images(layout: Layout) -> Path:
    """Write the archive of the images that every node imports; returns its path."""
    return archive(layout.directory / IMAGES, busybox_images(BUSYBOX))


def make_node_parts(node: Node) -> None:
    """Create the node's cgroup and bridge, which are outside the directory: record the state first."""
    machine.make_cgroups(node.scope)
    machine.make_bridge(node.scope, node.address)
