"""What is measured: the workloads, and the objects they are made of. Pure.

Every pod of a workload is alike, so that the numbers tell about Parley rather than about packing. Each node
publishes the same devices, more than the pods need: nobody waits for a device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.names import API_VERSION, NEGOTIATED_TAINT

Body = Mapping[str, Any]

DRIVER = "device.parley.dev"
CLASS = "bench-device"
TEMPLATE = "one-device"
DEVICES_PER_NODE = 48
"""Enough for four claims of 1000 pods on 100 nodes; a ResourceSlice holds 64 devices that have taints."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`pods` pods with `claims` template claims each, created all at once, or one after the other is bound."""

    name: str
    nodes: int
    pods: int
    claims: int
    one_by_one: bool = False


WORKLOADS: Sequence[Workload] = (
    Workload("plain-100nodes", nodes=100, pods=1000, claims=0),
    Workload("idle-100nodes", nodes=100, pods=20, claims=1, one_by_one=True),
    Workload("claims1-100nodes", nodes=100, pods=1000, claims=1),
    Workload("claims4-100nodes", nodes=100, pods=1000, claims=4),
    Workload("plain-500nodes", nodes=500, pods=1000, claims=0),
    Workload("claims1-500nodes", nodes=500, pods=1000, claims=1),
)
"""In the order in which they run: nodes are only ever added. The plain ones are the yardstick of their size."""


def chosen(name: str | None) -> Sequence[Workload]:
    """The workload of that name, or all. Raises ValueError for an unknown name."""
    found = [workload for workload in WORKLOADS if name in (None, workload.name)]
    if not found:
        known = ", ".join(workload.name for workload in WORKLOADS)
        raise ValueError(f"--workload={name!r} is not known: name one of {known}")
    return found


def resource_class() -> Body:
    """The class that all claims name."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClass",
        "metadata": {"name": CLASS},
        "driverName": DRIVER,
    }


def template() -> Body:
    """Asks for one device of the workload's model."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE},
        "spec": {"spec": {"resourceClassName": CLASS, "parameters": {"count": 1, "model": "bench"}}},
    }


def pod(number: int, claims: int) -> Body:
    """A pod with so many claims, each used by its one container."""
    names = [f"device-{position}" for position in range(claims)]
    container: dict[str, Any] = {
        "name": "main",
        "image": "registry.invalid/none",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if names:
        container["resources"]["claims"] = [{"name": name} for name in names]
        spec["resourceClaims"] = [{"name": name, "resourceClaimTemplateName": TEMPLATE} for name in names]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": spec}


def resource_slice(node: str) -> Body:
    """What the node plugin would publish for a node with devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-devices"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(number) for number in range(DEVICES_PER_NODE)],
        },
    }


def _device(number: int) -> Body:
    return {
        "name": f"device-{number}",
        "attributes": {"model": {"string": "bench"}},
        "capacity": {"memory": {"value": "16Gi"}, "slices": {"value": "1"}},
        "taints": [{"key": NEGOTIATED_TAINT, "effect": "NoSchedule"}],
    }
