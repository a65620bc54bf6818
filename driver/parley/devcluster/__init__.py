"""A real Kubernetes on this machine: control plane, kubelets and containerd, from cached programs in seconds."""

from __future__ import annotations

from parley.devcluster.cluster import Cluster, ClusterError
from parley.devcluster.layout import Node, NodeOptions
from parley.devcluster.teardown import clean

__all__ = ["Cluster", "ClusterError", "Node", "NodeOptions", "clean"]
