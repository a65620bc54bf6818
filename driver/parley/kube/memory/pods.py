"""Strategy for pods: defaults, mutable fields of the spec, binding, graceful deletion.

The rest of pod validation is left out: pods of tests and simulations are assumed to be well formed.
Source: pkg/registry/core/pod (strategy.go, storage/storage.go), pkg/apis/core/v1/defaults.go (1.37).
"""

from collections.abc import Sequence
from typing import Any

from parley.kube.memory.errors import Fault

Json = dict[str, Any]

_MAY_CHANGE = frozenset(
    {
        "activeDeadlineSeconds",
        "containers",
        "initContainers",
        "resources",
        "schedulingGates",
        "terminationGracePeriodSeconds",
        "tolerations",
    }
)
_MAY_CHANGE_WHILE_GATED = _MAY_CHANGE | {"affinity", "nodeSelector"}
_DEFAULT_GRACE = 30


def with_defaults(body: Json) -> Json:
    """The pod as the server stores it: pending, with the defaults that scheduling depends on."""
    spec = {
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _DEFAULT_GRACE,
        **body.get("spec", {}),
    }
    for containers in ("containers", "initContainers"):
        if containers in spec:
            spec[containers] = [_with_requests(container) for container in spec[containers]]
    return {**body, "spec": spec, "status": {"phase": "Pending"}}


def _with_requests(container: Json) -> Json:
    """The container, whose requests default to its limits."""
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if not limits:
        return container
    requests = {**limits, **resources.get("requests", {})}
    return {**container, "resources": {**resources, "requests": requests}}


def spec_rules(old: Json | None, new: Json) -> Sequence[Fault]:
    """The faults of a changed pod: most of its spec is immutable; only a binding sets its node."""
    if old is None:
        return ()
    before, after = old.get("spec", {}), new.get("spec", {})
    free = _MAY_CHANGE_WHILE_GATED if before.get("schedulingGates") else _MAY_CHANGE
    frozen = sorted((before.keys() | after.keys()) - free)
    if any(before.get(name) != after.get(name) for name in frozen):
        return [
            Fault(
                "spec",
                "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
                "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to"
                " existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was"
                " previously negative)",
            )
        ]
    gates = {gate["name"] for gate in before.get("schedulingGates") or ()}
    added = [gate["name"] for gate in after.get("schedulingGates") or () if gate["name"] not in gates]
    return [
        Fault(
            "spec.schedulingGates", f"Forbidden: only deletion is allowed, but found new scheduling gate '{name}'"
        )
        for name in added
    ]


def why_not_bound(body: Json) -> str:
    """Why the pod can't be bound; empty if it can."""
    meta, spec = body["metadata"], body.get("spec", {})
    name = meta["name"]
    if meta.get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def bound(body: Json, node: str, annotations: Json, now: str) -> Json:
    """The pod bound to the node, with the binding's annotations, and without its nomination (from 1.35 on)."""
    meta = body["metadata"]
    if annotations:
        meta = {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}
    status = {key: value for key, value in body.get("status", {}).items() if key != "nominatedNodeName"}
    others = [known for known in status.get("conditions", []) if known["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    return {
        **body,
        "metadata": meta,
        "spec": {**body["spec"], "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def grace(body: Json, wanted: int | None) -> int | None:
    """The grace period of a deletion, in seconds: 0 if the pod is not bound, or has finished. None if it is
    already being deleted, and no later than this: BeforeDelete in apiserver/pkg/registry/rest/delete.go (1.37)."""
    meta = body["metadata"]
    if meta.get("deletionTimestamp"):
        known = meta.get("deletionGracePeriodSeconds")
        if not known:
            return 0
        return wanted if wanted is not None and wanted < known else None
    if not body.get("spec", {}).get("nodeName") or body.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if wanted is not None:
        return wanted
    return int(body["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE))
