"""Stand-ins: the Parley claims in which standalone drivers record their allocations for generated claims. Pure.

A generated claim of such a driver gets a stand-in of the same name, owned by the pod; a named claim is its own
record. Composes stand-ins and reads the drivers' records, whose form the API server has checked.
"""

from typing import Any

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.models import ResourceClaim
from parley.api.names import API_VERSION, GENERATED_LABEL, driver_finalizer
from parley.control.objects.class_request import ClassRequest, of_spec
from parley.sdk import PodReference


def is_stand_in(claim: ResourceClaim) -> bool:
    """Whether the claim stands for one that Kubernetes generated from a template."""
    return GENERATED_LABEL in claim.metadata.labels


def stand_in(pod: Pod, entry: str, name: str, asked: ClassRequest, begun_by: str = "") -> dict[str, Any]:
    """The stand-in for the pod's generated claim of that name, owned by the pod. It has the finalizer of the
    driver `begun_by`, if that is given."""
    meta = pod.metadata
    spec: dict[str, Any] = {"resourceClassName": asked.class_name}
    if asked.parameters is not None:
        spec["parameters"] = dict(asked.parameters)
    if asked.reference is not None:
        spec["parametersRef"] = asked.reference.wire()
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
            **({"finalizers": [driver_finalizer(begun_by)]} if begun_by else {}),
        },
        "spec": spec,
    }


def stands_for(claim: ResourceClaim, pod_uid: str, entry: str, asked: ClassRequest | None) -> bool:
    """Whether the claim is the stand-in that was made for the pod's entry: users may make one of its name."""
    spec = claim.spec
    return (
        claim.metadata.labels.get(GENERATED_LABEL) == entry
        and owner_uid(claim) == pod_uid
        and spec.allocation_mode != "Immediate"
        and of_spec(spec) == asked
    )


def owner(claim: ResourceClaim) -> PodReference | None:
    """The pod that a stand-in belongs to; None for named claims, and if the pod was deleted with
    `--cascade=orphan`."""
    if not is_stand_in(claim):
        return None
    namespace, owners = claim.metadata.namespace, claim.metadata.owner_references
    return next((PodReference(namespace, one.name, one.uid) for one in owners if one.controller), None)


def owner_uid(claim: ResourceClaim) -> str:
    """The UID of the pod that a stand-in belongs to; "" for other claims."""
    pod = owner(claim)
    return pod.uid if pod is not None else ""


def is_orphan(claim: ResourceClaim) -> bool:
    """Whether the claim is the stand-in of a pod that was deleted with `--cascade=orphan`."""
    return is_stand_in(claim) and owner(claim) is None


def is_left_behind(claim: ResourceClaim, mirror: BuiltinClaim | None) -> bool:
    """Whether the claim is a stand-in that the garbage collector does not delete when its pod is gone: it may not
    delete an allocated one, nor does it if the pod was deleted with `--cascade=orphan`. Such a pod may be gone
    later than its stand-in loses its owner, and has it reserved until then."""
    if not is_stand_in(claim) or claim.metadata.deletion_timestamp:
        return False
    if is_orphan(claim):
        return mirror is None or not mirror.status.reserved_for
    return claim.status.allocation is not None


def being_deallocated(claim: ResourceClaim) -> bool:
    """Whether the claim's record shows an allocation that has to be deallocated before another one is made."""
    return claim.status.allocation is not None or bool(claim.metadata.deletion_timestamp and is_stand_in(claim))
