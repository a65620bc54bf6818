"""`parley cluster up` returns when every node's plugin has published its devices."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from parley_devcluster import Cluster
from parley_devcluster.parley import wait_for_devices
from parley_devcluster.startup import ClusterError


def cluster(*answers: str) -> Cluster:
    """Two nodes; `kubectl` answers so, and with the last one from then on."""
    left = list(answers)

    def kubectl(*_: str) -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    nodes = [SimpleNamespace(name=name) for name in ("node-1", "node-2")]
    return cast(Cluster, SimpleNamespace(nodes=nodes, kubectl=kubectl, directory=Path("/there")))


def test_it_waits_for_every_node() -> None:
    wait_for_devices(cluster("", "node-2", "node-1 node-2 node-2"), limit=30)


def test_a_plugin_that_publishes_nothing_is_named() -> None:
    with pytest.raises(ClusterError, match="no ResourceSlice of node-1 after 0 s: see the logs in /there"):
        wait_for_devices(cluster("node-2"), limit=0)
