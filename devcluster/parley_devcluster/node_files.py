"""The configuration of a real node's kubelet, containerd and pod network, as values.

A node's two programs share nothing with other nodes of the machine: they have their own roots, sockets, ports,
bridge, subnet and cgroup. Two paths are compiled into the kubelet and therefore shared by all: the device plugins'
folder and the log links in /var/log/containers, which `teardown` removes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parley_devcluster.control_plane import Command
from parley_devcluster.debian import CNI_PLUGINS
from parley_devcluster.images import PAUSE
from parley_devcluster.layout import Layout, Node

_ROOM = {
    "memory.available": "100Mi",
    "nodefs.available": "1%",
    "nodefs.inodesFree": "1%",
    "imagefs.available": "1%",
}


def containerd(layout: Layout, node: Node) -> Command:
    """The node's container runtime; it is healthy when its socket accepts connections."""
    argv = (str(layout.binaries / "containerd"), "--config", str(node.folder / "containerd.toml"))
    path = f"{layout.binaries}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return Command(node.containerd, argv, str(node.containerd_socket), {"PATH": path})


def kubelet(layout: Layout, node: Node) -> Command:
    """The node's kubelet, as a process of this machine with its own folders."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(node.options.labels.items()))
    argv = (
        str(layout.binaries / "kubelet"),
        f"--config={node.folder}/kubelet.yaml",
        f"--kubeconfig={layout.kubeconfigs}/{node.kubelet}",
        f"--root-dir={node.kubelet_dir}",
        f"--cert-dir={node.folder}/pki",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        *([f"--node-labels={labels}"] if labels else []),
        "--v=2",
    )
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    health = f"http://127.0.0.1:{node.healthz_port}/healthz"
    return Command(node.kubelet, argv, health, {"PATH": path})


def kubelet_configuration(layout: Layout, node: Node) -> dict[str, Any]:
    """A KubeletConfiguration. Images are not garbage-collected, because they could not be pulled again.

    Pods are synced again after 10 to 15 s instead of 60 to 90: if the kubelet gets a new pod before the node
    authorizer of a busy API server does, its request for the pod's claim is refused, and it retries at the next
    sync.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": node.port,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": node.healthz_port,
        "tlsCertFile": str(layout.pki / f"{node.name}-serving.crt"),
        "tlsPrivateKeyFile": str(layout.pki / f"{node.name}-serving.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.scope}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "podLogsDir": str(node.pod_logs_dir),
        "volumePluginDir": str(node.folder / "volume-plugins"),
        "clusterDomain": "cluster.local",
        "clusterDNS": ["10.96.0.10"],
        "makeIPTablesUtilChains": False,
        "evictionHard": _ROOM,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "systemReserved": dict(node.options.reserved),
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "eventRecordQPS": 0,
        "registryPullQPS": 0,
        "syncFrequency": "10s",
    }


def containerd_configuration(node: Node, *, restrict_oom_score: bool, snapshotter: str = "overlayfs") -> str:
    """containerd's TOML. Without CAP_SYS_RESOURCE runc can't lower OOM scores, and fails unless they are
    restricted."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""\
version = 3
root = {_toml(node.folder / "containerd")}
state = {_toml(node.run_dir)}
temp = ''
imports = []

[grpc]
address = {_toml(node.containerd_socket)}

[plugins.'io.containerd.cri.v1.images']
snapshotter = {_toml(snapshotter)}

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = {_toml(PAUSE)}

[{runtime}]
restrict_oom_score_adj = {_toml(restrict_oom_score)}
netns_mounts_under_state_dir = true
cdi_spec_dirs = [{_toml(node.cdi_dir)}]

[{runtime}.cni]
bin_dirs = [{_toml(CNI_PLUGINS)}]
conf_dir = {_toml(node.folder / "cni" / "net.d")}
use_internal_loopback = true

[{runtime}.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'

[{runtime}.containerd.runtimes.runc.options]
Root = {_toml(node.run_dir / "runc")}
SystemdCgroup = false

[plugins.'io.containerd.shim.v1.manager']
socket_dir = {_toml(node.shim_sockets)}

[plugins.'io.containerd.internal.v1.opt']
path = {_toml(node.folder / "opt")}

[plugins.'io.containerd.nri.v1.nri']
disable = true
"""


def network_configuration(node: Node) -> dict[str, Any]:
    """A CNI configuration list: a bridge with addresses of the node's subnet. Pods reach only each other and the
    node."""
    return {
        "cniVersion": "0.4.0",
        "name": node.scope,
        "plugins": [
            {
                "type": "bridge",
                "bridge": node.scope,
                "isGateway": True,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(node.folder / "cni" / "addresses"),
                    "ranges": [[{"subnet": f"{node.subnet}.0/24", "rangeStart": f"{node.subnet}.2"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def _toml(value: Path | str | bool) -> str:
    """A TOML value: JSON's strings and booleans are TOML's."""
    return json.dumps(str(value) if isinstance(value, Path) else value)
