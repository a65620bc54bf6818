"""Nodes that exist as API objects only: the scheduler places pods on them, and nothing runs there.

They send no heartbeats, so a cluster that has them runs without the controllers that would make them
unreachable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.kube.client import Client
from parley_devcluster.api import NODES

LABEL = "parley.dev/fake-node"
ALLOCATABLE: Mapping[str, str] = {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}


async def add(
    client: Client, count: int, prefix: str, allocatable: Mapping[str, str], labels: Mapping[str, str]
) -> list[str]:
    """Create nodes, ready and without taints, whose numbers continue those of the fake nodes there are.

    Returns their names; raises `AlreadyExists` where another node has one.
    """
    first = len((await client.list(NODES, label_selector=LABEL)).items)
    names = [f"{prefix}{number}" for number in range(first, first + count)]
    for name in names:
        await client.create(NODES, node(name, allocatable, labels))
        await client.patch(NODES, name, {"spec": {"taints": None}})
    return names


def node(name: str, allocatable: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, Any]:
    """The Node object. Admission adds the not-ready taint at its creation, even if its status is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {LABEL: "true", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
        },
        "status": {
            "capacity": dict(allocatable),
            "allocatable": dict(allocatable),
            "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": "has no kubelet"}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }
