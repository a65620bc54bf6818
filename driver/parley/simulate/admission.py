"""A model of the admission policies `mirrors.yaml` and `claims.yaml` of `deploy/base`. No I/O.

Built-in resource allocation has no exclusive claims: without the policies kube-scheduler and claim controller
would reserve one for a second pod, or decide which pod is next; and users who may edit a namespace's objects could
change a claim's owner. The API server in memory has no admission; the models of Kubernetes' components and of
users check writes here first. `tests/admission_cases.py` tests the model and the policies on a real API server by
the same cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.builtin import BuiltinClaim
from parley.api.names import (
    DEVICE_CLASS,
    EXCLUSIVE_REQUEST,
    FINALIZER,
    GENERATED_LABEL,
    MIRROR_LABEL,
    POD_CLAIM_NAME_ANNOTATION,
    driver_annotation,
    driver_finalizer,
)
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, Resource
from parley.control.objects import in_use
from parley.control.objects.mirror import is_mirror, is_shareable, owner_pod_uid

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of an account that the policies check: whether it allocates (Parley), binds claims (the claim
    controller, the garbage collector), or deletes everything (the namespace controller), and the standalone
    drivers that it may act as."""

    name: str
    allocates: bool = False
    binds: bool = False
    deletes: bool = False
    drivers: frozenset[str] = frozenset()


def refusal(
    claim: BuiltinClaim, after: Sequence[Mapping[str, str]], *, clears: bool = False, allocates: bool = False
) -> str:
    """Why `status.reservedFor` of the claim can't become `after`, or its allocation can't be cleared; "" if
    allowed.

    `clears`: the write clears the allocation, too. `allocates`: the requester has the verb `allocate`, as Parley
    does; scheduler and claim controller do not.
    """
    if not is_mirror(claim) or is_shareable(claim):
        return ""
    title = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
    if len(after) > 1:
        pods = ", ".join(consumer["name"] for consumer in after)
        return (
            f"{title} is exclusive, and status.reservedFor would hold {len(after)} pods ({pods}): "
            "wait until the first pod is gone, or use a ResourceClass that has shareable: true."
        )
    before = claim.status.reserved_for
    if len(before) == len(after) == 1 and before[0].uid != after[0]["uid"]:
        return (
            f"{title} is exclusive and reserved for pod {before[0].name} (UID {before[0].uid}); "
            f"status.reservedFor cannot pass to pod {after[0]['name']} (UID {after[0]['uid']}) in one step: "
            "clear it first, when the first pod is gone."
        )
    known = {owner_pod_uid(claim), *(consumer.uid for consumer in before)}
    strangers = [consumer["name"] for consumer in after if consumer["uid"] not in known]
    if strangers and not allocates:
        return (
            f"{title} is exclusive, and Parley decides which pod may use it: wait until it adds pod "
            f"{strangers[0]} to "
            "status.reservedFor, which takes the verb allocate on resourceclaims.parley.dev."
        )
    if clears and in_use.shows_in_use(claim) and not allocates:
        return (
            f"{title} is in use, as condition parley.dev/in-use in status.devices says, and Parley clears "
            "status.allocation when that has ended: wait, or grant the verb allocate on resourceclaims.parley.dev."
        )
    return ""


def refused(resource: Resource[Any], old: Json | None, new: Json | None, rights: Rights) -> str:
    """Why the account can't create (`old` is None), change or delete (`new` is None) the object; "" if allowed."""
    if rights.allocates:
        return ""
    found = next(body for body in (new, old) if body is not None)
    title = f"{resource.kind} {found['metadata']['namespace']}/{found['metadata']['name']}"
    if (
        resource == BUILTIN_TEMPLATES
        and old is None
        and new is not None
        and _uses_parley_class(new["spec"]["spec"])
    ):
        return _creation_refused(title, rights, "ResourceClaimTemplate")
    if resource == BUILTIN_CLAIMS and _uses_parley_class(found["spec"]):
        return _mirror_refused(title, old, new, rights)
    if resource == CLAIMS:
        return _claim_refused(title, old or {}, new or {}, rights)
    return ""


def _uses_parley_class(spec: Json) -> bool:
    return any(
        part.get("deviceClassName") == DEVICE_CLASS
        for request in _requests(spec)
        for part in (request.get("exactly") or {}, *(request.get("firstAvailable") or ()))
    )


def _requests(spec: Json) -> Sequence[Json]:
    return (spec.get("devices") or {}).get("requests") or ()


def _creation_refused(title: str, rights: Rights, kind: str) -> str:
    return (
        f"{title} names DeviceClass being-negotiated.parley.dev, and {rights.name} cannot create what Parley "
        f"negotiates: create a {kind} of parley.dev instead, or grant the verb allocate on "
        "resourceclaims.parley.dev."
    )


def _mirror_refused(title: str, old: Json | None, new: Json | None, rights: Rights) -> str:
    if old is None:
        assert new is not None
        names = [r["name"] for r in _requests(new["spec"]) if r.get("exactly")]
        whole = names == [EXCLUSIVE_REQUEST] and len(_requests(new["spec"])) == 1
        return "" if rights.binds and whole else _creation_refused(title, rights, "ResourceClaim")
    if new is not None:
        if rights.binds or _ownership(old) == _ownership(new):
            return ""
        return (
            f"{title} is negotiated by Parley, and {rights.name} cannot change metadata.ownerReferences, "
            "annotation resource.kubernetes.io/pod-claim-name, label parley.dev/mirror nor finalizer "
            "parley.dev/in-use, which identify its owner: leave them as they are."
        )
    users = [user["name"] for user in (old.get("status") or {}).get("reservedFor") or ()]
    if rights.binds or rights.deletes or not users or FINALIZER in _part(old, "finalizers"):
        return ""
    return (
        f"{title} is reserved for pod {', '.join(users)}, which may use what Parley allocated: delete the pod, "
        "and the claim is deleted with it."
    )


def _part(body: Json, name: str) -> Any:
    """A list or map of the metadata; empty if it is missing."""
    return (body.get("metadata") or {}).get(name) or ()


def _ownership(mirror: Json) -> tuple[Any, ...]:
    labels, annotations = dict(_part(mirror, "labels")), dict(_part(mirror, "annotations"))
    return (
        _part(mirror, "ownerReferences"),
        annotations.get(POD_CLAIM_NAME_ANNOTATION, ""),
        labels.get(MIRROR_LABEL, ""),
        FINALIZER in _part(mirror, "finalizers"),
    )


def gc_forbidden(resource: Resource[Any], claim: Json) -> bool:
    """Whether a policy keeps the garbage collector from deleting the object."""
    return resource.untyped() == CLAIMS.untyped() and bool(_deletion_refused("", claim))


def _claim_refused(title: str, old: Json, new: Json, rights: Rights) -> str:
    if rights.binds:
        return "" if new else _deletion_refused(title, old)
    return _parley_marks_refused(title, old, new, rights) or _driver_marks_refused(title, old, new, rights)


def _deletion_refused(title: str, stand_in: Json) -> str:
    """Refuses to delete a generated claim while it is allocated: it has a standalone driver's record, and the pod
    may still run."""
    generated = GENERATED_LABEL in dict(_part(stand_in, "labels"))
    allocated = (stand_in.get("status") or {}).get("allocation")
    if not generated or not allocated or _part(stand_in, "deletionTimestamp"):
        return ""
    return (
        f"{title} is allocated, and Parley deletes it when its pod has ended, which may be long after the "
        "deletion of the pod began."
    )


def _parley_marks_refused(title: str, old: Json, new: Json, rights: Rights) -> str:
    generated = GENERATED_LABEL in dict(_part(old, "labels"))
    if not new:
        if rights.deletes or not generated:
            return ""
        text = "cannot delete what Parley created for a pod: delete the pod, and it is deleted with it."
        return f"{title}: {rights.name} {text}"
    if _generated_for(old) != _generated_for(new):
        return (
            f"{title}: {rights.name} cannot set or remove label parley.dev/generated-for, by which Parley "
            "recognises what it created for a pod: leave it as it is, or grant the verb allocate on "
            "resourceclaims.parley.dev."
        )
    kept = FINALIZER not in _part(old, "finalizers") or FINALIZER in _part(new, "finalizers")
    same = not generated or _part(old, "ownerReferences") == _part(new, "ownerReferences")
    if not old or (kept and same):
        return ""
    return (
        f"{title}: {rights.name} cannot remove finalizer parley.dev/in-use, nor change metadata.ownerReferences "
        "of what Parley created for a pod: delete the pods that use it."
    )


def _generated_for(claim: Json) -> Any:
    return dict(_part(claim, "labels")).get(GENERATED_LABEL)


def _driver_marks_refused(title: str, old: Json, new: Json, rights: Rights) -> str:
    marks = _changed_driver_marks(old, new) if new else []
    drivers = [mark.partition("/")[0] for mark in marks]
    if not drivers or (len(set(drivers)) == 1 and drivers[0] in rights.drivers):
        return ""
    return (
        f"{title}: {rights.name} cannot set, change or remove {', '.join(marks)} in metadata.finalizers and "
        f"metadata.annotations, by which driver {drivers[0]} recognises what it may hold: create the claim "
        "without them, later leave them as they are, or grant the verb allocate on "
        f"resourceclaims.parley.dev/driver with the resource name {drivers[0]}."
    )


def _changed_driver_marks(old: Json, new: Json) -> list[str]:
    """The drivers' finalizers and annotations that were set, changed or removed."""
    finalizers, before = (_ending(_part(body, "finalizers"), driver_finalizer("")) for body in (new, old))
    notes, noted = (dict(_part(body, "annotations")) for body in (new, old))
    changed = [*(a for a in notes if noted.get(a) != notes[a]), *(a for a in noted if a not in notes)]
    return [
        *(finalizer for finalizer in finalizers if finalizer not in before),
        *(finalizer for finalizer in before if finalizer not in finalizers),
        *_ending(changed, driver_annotation("")),
    ]


def _ending(names: Sequence[str], ending: str) -> list[str]:
    return [name for name in names if name.endswith(ending)]
