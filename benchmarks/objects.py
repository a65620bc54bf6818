"""The objects that the workloads are made of. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.standalone import Outside
from parley.api.names import API_VERSION, NEGOTIATED_TAINT
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver

Body = Mapping[str, Any]

DEVICES_PER_NODE = 48
"""Enough for four claims of 1000 pods on 100 nodes; a ResourceSlice holds 64 devices that have taints."""

GPUS_PER_NODE = 8
"""As usual machines have: for clusters of thousands of nodes."""

_RESULTS = 24
"""A claim can have at most 32 devices."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One kind of claim: a class and a template that names it. `name` is that of both, and begins the entries."""

    name: str
    driver: str
    parameters: Body
    class_: Body = field(default_factory=dict)


_POOL = {"parameters": {"pool": 1_000_000, "scope": "Node"}, "nodePart": "None"}

DEVICE = Ask("device", DeviceDriver.name, {"count": 1, "model": "bench"})
TOKENS = Ask("tokens", TokensDriver.name, {"count": 1}, _POOL)
OUTSIDE = Ask("outside", Outside.name, {"count": 1}, _POOL)
NEVER = Ask("never", DeviceDriver.name, {"count": 1, "model": "none-such"})
"""What no node has."""

ASKS = (DEVICE, TOKENS, OUTSIDE, NEVER)


def resource_class(ask: Ask) -> Body:
    """The class."""
    head = {"apiVersion": API_VERSION, "kind": "ResourceClass", "metadata": {"name": ask.name}}
    return {**head, "driverName": ask.driver, **ask.class_}


def template(ask: Ask) -> Body:
    """The template."""
    spec = {"resourceClassName": ask.name, "parameters": ask.parameters}
    head = {"apiVersion": API_VERSION, "kind": "ResourceClaimTemplate", "metadata": {"name": ask.name}}
    return {**head, "spec": {"spec": spec}}


def pod(number: int, asks: Sequence[Ask], scheduler: str = "") -> Body:
    """A pod with so many claims, each used by its one container; without a name the cluster's own scheduler's."""
    entries = [(f"{ask.name}-{position}", ask.name) for position, ask in enumerate(asks)]
    container: dict[str, Any] = {
        "name": "main",
        "image": "registry.invalid/none",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if scheduler:
        spec["schedulerName"] = scheduler
    if entries:
        container["resources"]["claims"] = [{"name": name} for name, _ in entries]
        spec["resourceClaims"] = [{"name": name, "resourceClaimTemplateName": of} for name, of in entries]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod_name(number)}, "spec": spec}


def pod_name(number: int) -> str:
    """That pod's."""
    return f"pod-{number}"


FINISHED: Body = {"status": {"phase": "Succeeded"}}
"""What a kubelet writes when a pod's containers have ended and its claims are unprepared."""


def resource_slice(node: str, devices: int = DEVICES_PER_NODE) -> Body:
    """What the node plugin would publish for a node with so many devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-devices"},
        "spec": {
            "driver": DeviceDriver.name,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(number) for number in range(devices)],
        },
    }


def _device(number: int) -> Body:
    return {
        "name": f"device-{number}",
        "attributes": {"model": {"string": "bench"}},
        "capacity": {"memory": {"value": "16Gi"}, "slices": {"value": "1"}},
        "taints": [{"key": NEGOTIATED_TAINT, "effect": "NoSchedule"}],
    }


def takers(node: str) -> Sequence[Body]:
    """Claims of ordinary DRA that together hold all devices of the node: what else Kubernetes gave away."""
    return [_taker(node, first) for first in range(0, DEVICES_PER_NODE, _RESULTS)]


def _taker(node: str, first: int) -> Body:
    exactly = {"deviceClassName": "others", "allocationMode": "ExactCount", "count": _RESULTS}
    results = [
        {"request": "devices", "driver": DeviceDriver.name, "pool": node, "device": f"device-{number}"}
        for number in range(first, first + _RESULTS)
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"{node}-{first}"},
        "spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}},
        "status": {
            "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}},
        },
    }
