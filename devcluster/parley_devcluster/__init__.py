"""A real Kubernetes on this machine: control plane, kubelets and containerd, from cached programs in seconds.

    with Cluster.start(Path("/tmp/parley"), nodes=[NodeOptions("node-1")]) as cluster:
        print(cluster.kubectl("get", "nodes"))

`up` and `down` do the same for a cluster that outlives the command. `parley_devcluster.parley.run_parley`
runs Parley in it. Programs that are not found are built from pinned Go modules, once per version (`binaries`,
`gobuild`).
"""

from __future__ import annotations

from parley_devcluster.cluster import Cluster
from parley_devcluster.component import Component, ComponentFailed
from parley_devcluster.layout import LayoutError, Node, NodeOptions
from parley_devcluster.startup import ClusterError
from parley_devcluster.teardown import Leftovers, clean
from parley_devcluster.updown import Up, default_directory, down, up

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
