"""A real Kubernetes on this machine: control plane, kubelets and containerd, from cached programs in seconds.

    with Cluster.start(Path("/tmp/parley"), nodes=[NodeOptions("node-1")]) as cluster:
        print(cluster.kubectl("get", "nodes"))

`up` and `down` do the same for a cluster that outlives the command. `parley.devcluster.parley.run_parley`
runs Parley in it. Programs that are not found are built from pinned Go modules, once per version (`binaries`,
`gobuild`).
"""

from __future__ import annotations

from parley.devcluster.cluster import Cluster
from parley.devcluster.component import Component, ComponentFailed
from parley.devcluster.layout import LayoutError, Node, NodeOptions
from parley.devcluster.startup import ClusterError
from parley.devcluster.teardown import Leftovers, clean
from parley.devcluster.updown import Up, default_directory, down, up

__all__ = [
    "Cluster",
    "ClusterError",
    "Component",
    "ComponentFailed",
    "LayoutError",
    "Leftovers",
    "Node",
    "NodeOptions",
    "Up",
    "clean",
    "default_directory",
    "down",
    "up",
]
