"""Manifests as a user would write them, with only what a test is about left to say.

Pods end at once when they are asked to, and finish when the file /tmp/finish appears in them. Namespaces are
filled in by whoever creates the objects.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.api.names import API_VERSION, NEGOTIATED_TAINT, NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.drivers.workspace import DISK, WorkspaceDriver

Manifest = dict[str, Any]

DRIVER = "device.parley.dev"
IMAGE = "parley.dev/busybox:dev"

UNTIL_FINISHED = "until [ -e /tmp/finish ]; do sleep 0.1; done"
SHOW_DEVICES = "env; for node in /dev/*; do [ -c $node ] && echo DEVICE $node; done; " + UNTIL_FINISHED


def pod(
    name: str,
    *,
    templates: Mapping[str, str] | None = None,
    claims: Mapping[str, str] | None = None,
    script: str = UNTIL_FINISHED,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """A pod of one container that uses each entry of `templates` (entry: template) and `claims` (entry: claim)."""
    entries = [{"name": e, "resourceClaimTemplateName": t} for e, t in (templates or {}).items()]
    entries += [{"name": e, "resourceClaimName": c} for e, c in (claims or {}).items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "restartPolicy": "Never",
            "resourceClaims": entries,
            "containers": [container("main", script, *(entry["name"] for entry in entries))],
            **spec,
        },
    }


def container(name: str, script: str, *entries: str, **fields: Any) -> Manifest:
    """A container that uses these of its pod's claims; give it to `pod` in `containers` or `initContainers`."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"trap 'exit 0' TERM; {{ {script}; }} & wait $!"],
        "resources": {"requests": {"cpu": "10m"}, "claims": [{"name": entry} for entry in entries]},
        **fields,
    }


def resource_class(name: str, driver: str = DRIVER, **fields: Any) -> Manifest:
    """A class of Parley's."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClass",
        "metadata": {"name": name},
        "driverName": driver,
        **fields,
    }


def claim(name: str, class_name: str = "gpu", **parameters: object) -> Manifest:
    """A claim of Parley's that pods name."""
    return _parley("ResourceClaim", name, _claim_spec(class_name, parameters))


def template(name: str, class_name: str = "gpu", **parameters: object) -> Manifest:
    """A template of Parley's, of which each pod gets a claim of its own."""
    return _parley("ResourceClaimTemplate", name, {"spec": _claim_spec(class_name, parameters)})


def _parley(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _claim_spec(class_name: str, parameters: Mapping[str, Any]) -> Manifest:
    return {"resourceClassName": class_name, "parameters": dict(parameters)}


def ordinary_class(name: str, selector: str) -> Manifest:
    """A DeviceClass of ordinary DRA, with a CEL selector over devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": selector}}]},
    }


def ordinary_claim(name: str, device_class: str, *, tolerate: bool = False) -> Manifest:
    """An ordinary DRA claim for one device; `tolerate` even one that Parley negotiates."""
    exactly: Manifest = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    if tolerate:
        exactly["tolerations"] = [{"key": NEGOTIATED_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "it", "exactly": exactly}]}},
    }


def resource_slice(node: str, devices: Sequence[str], driver: str = DRIVER, slices: int = 1) -> Manifest:
    """What a node plugin publishes; devices of Parley's driver keep ordinary DRA away, as the plugin's do."""
    taint = {"key": NEGOTIATED_TAINT, "value": driver, "effect": "NoSchedule"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": device,
                    "attributes": {"model": {"string": "a100"}},
                    "capacity": {"memory": {"value": "40Gi"}, "slices": {"value": str(slices)}},
                    "taints": [taint] if driver == DRIVER else [],
                }
                for device in devices
            ],
        },
    }


def workspace_disk(node: str) -> Manifest:
    """What the node plugin of workspaces publishes: the node's disk."""
    device = {"name": DISK, "capacity": {"size": {"value": "10Gi"}}}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-disk", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}},
        "spec": {"driver": WorkspaceDriver.name, "nodeName": node, "pool": pool, "devices": [device]},
    }


def apart_from(labels: Mapping[str, str]) -> Manifest:
    """Pod anti-affinity, which Parley's model of the scheduler does not know: no node with a pod so labelled."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
