"""Nodes that exist as API objects only: the scheduler places pods on them, and nothing runs there.

They send no heartbeats, so a cluster that has them runs without the controllers that would make them
unreachable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley_devcluster.api import ApiServer

LABEL = "parley.dev/fake-node"
ALLOCATABLE: Mapping[str, str] = {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}


def add(api: ApiServer, names: list[str], allocatable: Mapping[str, str], labels: Mapping[str, str]) -> None:
    """Create the nodes, ready and without taints; raises `ApiError` when one exists already."""
    with api.kept_open():
        for name in names:
            api.post("/api/v1/nodes", node(name, allocatable, labels))
            api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})


def next_names(api: ApiServer, count: int, prefix: str) -> list[str]:
    """`count` names that continue those of the fake nodes there are."""
    existing = len(api.get(f"/api/v1/nodes?labelSelector={LABEL}")["items"])
    return [f"{prefix}{number}" for number in range(existing, existing + count)]


def node(name: str, allocatable: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, Any]:
    """The Node object; admission adds the not-ready taint when it is created, however ready it says it is."""
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
