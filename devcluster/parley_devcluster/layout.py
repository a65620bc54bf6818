"""A cluster's paths, ports, addresses and names: frozen values from which command lines and cleanup follow.

A layout is determined once, at the start, and recorded in the cluster's state before anything is created, so
that another process can take everything down again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_SHIM_SOCKETS = 42  # containerd's limit for the path of its shims' sockets, whose names have 64 hex digits
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class LayoutError(ValueError):
    """A directory or node name that can't be used for a cluster."""


@dataclass(frozen=True)
class NodeOptions:
    """A caller's options for one real node.

    `reserved` is subtracted from the node's allocatable resources, for example `{"cpu": "500m", "memory": "1Gi"}`.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    reserved: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ports:
    """The ports of the control plane, all on the loopback address."""

    etcd: int
    etcd_peer: int
    etcd_health: int
    api_server: int
    scheduler: int
    controller_manager: int


@dataclass(frozen=True)
class Node:
    """One real node: a kubelet and its own containerd, with every path under `folder`."""

    options: NodeOptions
    folder: Path
    scope: str
    """The name of this node's bridge, network and cgroup; unique on the machine, at most 15 characters."""
    subnet: str
    """The first three numbers of the pods' addresses, for example `10.201.7`; the bridge and the node have
    `.1`."""
    port: int
    healthz_port: int

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def address(self) -> str:
        """The node's address, which is also its bridge's."""
        return f"{self.subnet}.1"

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's --root-dir."""
        return self.folder / "kubelet"

    @property
    def plugins_dir(self) -> Path:
        """Where DRA plugins create their sockets, each in a folder named after the driver."""
        return self.kubelet_dir / "plugins"

    @property
    def plugins_registry_dir(self) -> Path:
        """Where DRA plugins create their registration sockets, by which the kubelet finds them."""
        return self.kubelet_dir / "plugins_registry"

    @property
    def cdi_dir(self) -> Path:
        """Where containerd looks for CDI specifications."""
        return self.folder / "cdi"

    @property
    def pod_logs_dir(self) -> Path:
        """The pods' logs: `<namespace>_<pod>_<uid>/<container>/<restart>.log`."""
        return self.folder / "pod-logs"

    @property
    def run_dir(self) -> Path:
        """containerd's state: sockets, bundles, network namespaces, mounts."""
        return self.folder / "run"

    @property
    def containerd_socket(self) -> Path:
        """Where the node's containerd serves the CRI."""
        return self.run_dir / "containerd.sock"

    @property
    def shim_sockets(self) -> Path:
        """The folder of the containerd shims' sockets; its path is short, because their names are long."""
        return self.folder / "s"

    @property
    def parley_dir(self) -> Path:
        """The --state-dir of Parley's node plugin."""
        return self.folder / "parley"

    @property
    def kubelet(self) -> str:
        """The name of this node's kubelet among the cluster's components."""
        return f"kubelet-{self.name}"

    @property
    def containerd(self) -> str:
        """The name of this node's containerd among the cluster's components."""
        return f"containerd-{self.name}"


@dataclass(frozen=True)
class Layout:
    """One cluster: its directory, version, ports and nodes, and the options that change its command lines."""

    directory: Path
    version: str
    ports: Ports
    nodes: tuple[Node, ...] = ()
    node_lifecycle: bool = True
    """Whether nodes without heartbeats become unreachable; off with fake nodes, which send none."""
    service_accounts: bool = False
    """Whether pods have service accounts and their tokens. A new namespace then accepts pods only after a
    moment."""
    scheduler_config: Mapping[str, Any] = field(default_factory=dict)
    """Merged over the KubeSchedulerConfiguration's top level."""

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.ports.api_server}"

    @property
    def binaries(self) -> Path:
        """Links to the programs of this cluster's version."""
        return self.directory / "bin"

    @property
    def logs(self) -> Path:
        """One file for each component."""
        return self.directory / "logs"

    @property
    def pki(self) -> Path:
        """Keys and certificates: the CA's, and a pair for each client and server."""
        return self.directory / "pki"

    @property
    def kubeconfigs(self) -> Path:
        """One for each component and account."""
        return self.directory / "kubeconfigs"

    @property
    def admin_kubeconfig(self) -> Path:
        """The kubeconfig of a user in the group system:masters."""
        return self.directory / "kubeconfig"


def scope(directory: Path, node: str) -> str:
    """The name of a node's bridge, network and cgroup. Linux limits names of interfaces to 15 characters."""
    return f"parley-{hashlib.sha256(f'{directory}/{node}'.encode()).hexdigest()[:8]}"


def check(directory: Path, nodes: Sequence[NodeOptions]) -> None:
    """Raise `LayoutError` if the directory or the nodes' names can't be used for a cluster."""
    if not directory.is_absolute():
        raise LayoutError(f"cluster directory {str(directory)!r} is relative: give an absolute path")
    names = [node.name for node in nodes]
    for name in names:
        if _NODE_NAME.fullmatch(name) is None:
            raise LayoutError(f"node name {name!r} is not lower-case letters, digits and dashes: choose another")
        if names.count(name) > 1:
            raise LayoutError(f"node name {name!r} is given twice: each node needs its own")
        sockets = directory / name / "s"
        excess = len(str(sockets).encode()) - _SHIM_SOCKETS
        if excess > 0:
            raise LayoutError(
                f"cluster directory {str(directory)!r} is too deep: the sockets of node {name!r} lie in"
                f" {str(sockets)!r}, {excess} characters more than the {_SHIM_SOCKETS} that unix sockets leave;"
                f" choose a shorter directory such as /tmp/parley"
            )


def dump(layout: Layout) -> dict[str, Any]:
    """The layout as JSON values."""
    plain = asdict(layout)
    plain["directory"] = str(layout.directory)
    for node in plain["nodes"]:
        node["folder"] = str(node["folder"])
    plain["nodes"] = list(plain["nodes"])
    return plain


def load(plain: Mapping[str, Any]) -> Layout:
    """The layout that `dump` wrote."""
    nodes = tuple(
        Node(**{**node, "options": NodeOptions(**node["options"]), "folder": Path(node["folder"])})
        for node in plain["nodes"]
    )
    return Layout(
        **{**plain, "directory": Path(plain["directory"]), "ports": Ports(**plain["ports"]), "nodes": nodes}
    )
