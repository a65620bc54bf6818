"""Nodes of a soak, their devices, and their JSON."""

from collections.abc import Mapping, Sequence

from tests.soak.kinds.names import DRIVER, STANDALONE_DRIVER, ZONE, ZONE_OF, Json, typed

from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import NODES, RESOURCE_SLICES

NODE_KINDS: Mapping[str, tuple[str, Sequence[str], int]] = {
    "a": (ZONE_OF["a"], ("40Gi",), 1),
    "b": (ZONE_OF["b"], ("40Gi", "80Gi"), 1),
    "c": (ZONE_OF["c"], ("40Gi", "40Gi", "40Gi"), 1),
    "d": (ZONE_OF["d"], ("80Gi",), 4),
}
"""Zone, each device's memory, and the number of shares that each can be split into."""

STANDALONE_DEVICES: Mapping[str, Sequence[str]] = {
    "a": ("40Gi",),
    "b": ("40Gi", "40Gi"),
    "c": (),
    "d": ("80Gi", "80Gi"),
}
"""The memory of each device of the standalone driver."""


def node(name: str) -> Json:
    """The Node: 8 CPUs, and 4 of the extended resource that claims can reserve (`rules.reservations`)."""
    labels = {"kubernetes.io/hostname": name, ZONE: NODE_KINDS[name][0]}
    allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", "example.com/room": "4"}
    return typed(NODES, {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}})


def slice_(node_name: str, generation: int, missing: frozenset[int] = frozenset()) -> Json:
    """The ResourceSlice that a node's plugin publishes, without the devices of the numbers `missing`."""
    _, memories, shares = NODE_KINDS[node_name]
    devices = [
        {"name": f"gpu-{i}", "capacity": {"memory": {"value": memory}, "slices": {"value": str(shares)}}}
        for i, memory in enumerate(memories)
        if i not in missing
    ]
    pool = {"name": node_name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": devices}
    metadata = {"name": f"{node_name}-devices", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}}
    return typed(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})


def standalone_slice(node_name: str, generation: int, missing: frozenset[int] = frozenset()) -> Json:
    """The ResourceSlice of the standalone driver's node part."""
    devices = [
        {"name": f"far-{i}", "capacity": {"memory": {"value": memory}, "slices": {"value": "2"}}}
        for i, memory in enumerate(STANDALONE_DEVICES[node_name])
        if i not in missing
    ]
    pool = {"name": node_name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": STANDALONE_DRIVER, "nodeName": node_name, "pool": pool, "devices": devices}
    metadata = {"name": f"{node_name}-far", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}}
    return typed(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})
