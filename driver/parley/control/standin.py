"""Stand-ins: the Parley claims in which drivers outside of the controller record what they allocated. Pure.

A generated claim that such a driver serves gets a stand-in of the same name, owned by the pod; a named claim is
its own record. What a driver wrote is read here; that it is well-formed was checked by the API server.
"""

from collections.abc import Iterable
from typing import Any

from parley.api.builtin import Node, NodeSelector, Pod
from parley.api.models import ResourceClaim
from parley.api.names import API_VERSION, GENERATED_LABEL
from parley.api.selectors import selector_of
from parley.control.mirror import Asked
from parley.negotiation.fit import matches
from parley.sdk import Allocation, Device


def is_stand_in(claim: ResourceClaim) -> bool:
    """Whether the claim stands for one that Kubernetes made from a template."""
    return GENERATED_LABEL in claim.metadata.labels


def stand_in(pod: Pod, entry: str, name: str, asked: Asked) -> dict[str, Any]:
    """The stand-in for the pod's generated claim of that name. It goes with the pod."""
    meta = pod.metadata
    spec: dict[str, Any] = {"resourceClassName": asked.class_name}
    if asked.parameters is not None:
        spec["parameters"] = dict(asked.parameters)
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {GENERATED_LABEL: entry},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
            ],
        },
        "spec": spec,
    }


def owner_uid(claim: ResourceClaim) -> str:
    """UID of the pod that a stand-in belongs to, "" for named claims."""
    if not is_stand_in(claim):
        return ""
    return next((owner.uid for owner in claim.metadata.owner_references if owner.controller), "")


def driver_of_record(claim: ResourceClaim) -> str:
    """The driver that allocated the claim by its own record, "" if nobody did."""
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    return allocation.handles[0].driver_name if allocation.handles else claim.status.driver_name or ""


def recorded(claim: ResourceClaim, nodes: Iterable[Node]) -> tuple[str, Allocation] | None:
    """What the claim's record says was allocated, and the first node where it can be used ("" if everywhere).

    `nodes` are those of the cluster, for a record that selects them by labels.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return None
    handle = allocation.handles[0] if allocation.handles else None
    devices = tuple(Device(d.pool, d.device) for d in handle.devices) if handle is not None else ()
    data = (handle.data if handle is not None else None) or {}
    if allocation.available_on_nodes is None:
        return "", Allocation(devices, data, None)
    selector = selector_of(allocation.available_on_nodes)
    on = _named(selector) or tuple(node.metadata.name for node in nodes if matches(selector, node))
    return (on[0] if on else ""), Allocation(devices, data, on if len(on) > 1 else ())


def _named(selector: NodeSelector) -> tuple[str, ...]:
    """The nodes that the selector names; none if it selects in any other way."""
    names: list[str] = []
    for term in selector.node_selector_terms:
        if term.match_expressions or len(term.match_fields) != 1 or term.match_fields[0].operator != "In":
            return ()
        names += term.match_fields[0].values
    return tuple(names)
