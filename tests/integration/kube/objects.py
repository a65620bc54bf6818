"""Objects for the conformance tests, with only what a test is about left to say."""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.api.names import API_VERSION
from parley.api.resources import Resource

Manifest = dict[str, Any]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, dict[str, Any])
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, dict[str, Any])
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict[str, Any])

DRIVER = "device.parley.dev"


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> Manifest:
    """The simplest object there is."""
    return {"metadata": {"name": name, **metadata}, "data": dict(data or {})}


def pod(name: str, *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> Manifest:
    """A pod that no scheduler takes up."""
    return {
        "metadata": {"name": name, **(metadata or {})},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "parley.dev/busybox:dev"}],
            **spec,
        },
    }


def binding(name: str, node: str, **metadata: Any) -> Manifest:
    """What a scheduler posts to bind the pod of that name."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def claim_release(name: str, node: str) -> Manifest:
    """What the node may still have prepared."""
    return {
        "metadata": {"name": name},
        "spec": {
            "claim": {"namespace": "default", "name": "mine", "uid": "u1"},
            "holdingUid": "u1",
            "nodeName": node,
            "driverName": DRIVER,
            "allocation": {},
        },
    }


def builtin_claim(name: str, request: str = "exclusive") -> Manifest:
    """A built-in claim like one of the mirrors, but guarded by none of the admission policies."""
    requests = [{"name": request, "exactly": {"deviceClassName": "no-mirror.example.com"}}]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


def device(name: str = "gpu-0", **fields: Any) -> Manifest:
    """A result of an allocation."""
    return {"request": "exclusive", "driver": DRIVER, "pool": "node-1", "device": name, **fields}


def allocation(*results: Manifest, config: Sequence[Manifest] = ()) -> Manifest:
    """A built-in allocation on node-1."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    devices: Manifest = {"results": list(results)}
    if config:
        devices["config"] = list(config)
    return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [term]}}


def consumer(name: str, uid: str) -> Manifest:
    """An entry of `reservedFor`."""
    return {"resource": "pods", "name": name, "uid": uid}


def parley_claim(name: str, **spec: Any) -> Manifest:
    """A claim of ours."""
    return {"metadata": {"name": name}, "spec": {"resourceClassName": "gpu", **spec}}


def parley_allocation(**fields: Any) -> Manifest:
    """What our driver allocated."""
    handle = {"driverName": DRIVER, "devices": [{"pool": "node-1", "device": "gpu-0"}]}
    return {"handles": [handle], **fields}


def pod_scheduling(name: str, **fields: Any) -> Manifest:
    """A negotiation."""
    return {"apiVersion": API_VERSION, "kind": "PodScheduling", "metadata": {"name": name}, **fields}


def answer(name: str, *viable: str, **fields: Any) -> Manifest:
    """One driver's answer in a PodScheduling."""
    return {"name": name, "driverName": DRIVER, "round": 1, "viableNodes": list(viable), **fields}


def owned_by(owner: Manifest) -> Manifest:
    """An owner reference to the object as the server returned it."""
    meta = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
