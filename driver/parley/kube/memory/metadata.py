"""Metadata that only the server writes, and the preconditions of a write.

Source: apiserver/pkg/registry/rest (create.go, update.go, delete.go), 1.37.
"""

from collections.abc import Set
from typing import Any, Literal

from parley.api.resources import Resource
from parley.kube.memory.errors import (
    Fault,
    bad_request,
    changed_meanwhile,
    invalid,
    other_uid,
    other_version,
    replaced_meanwhile,
)
from parley.kube.memory.kinds import Generation, Json, Traits

_SERVER_FIELDS = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
"""The garbage collector's finalizers."""

Propagation = Literal["", "Background", "Foreground", "Orphan"]
"""The propagation policy of a deletion; "" keeps the policy of an earlier deletion."""

_OMITTED_IF_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")


def created(body: Json, traits: Traits, name: str, namespace: str | None, uid: str, now: str) -> Json:
    """The new object with the server's metadata."""
    given = {
        key: value
        for key, value in body["metadata"].items()
        if key not in _SERVER_FIELDS and key != "managedFields"
    }
    meta: Json = {"name": name}
    if body["metadata"].get("generateName"):
        meta["generateName"] = body["metadata"]["generateName"]
    if namespace:
        meta["namespace"] = namespace
    meta |= {"uid": uid, "creationTimestamp": now}
    if traits.generation is not Generation.NEVER:
        meta["generation"] = 1
    return {**body, "metadata": {**meta, **_without_empty(given)}}


def updated(old: Json, new: Json) -> Json:
    """The changed object, with the server's metadata as before."""
    before, after = old["metadata"], new.get("metadata") or {}
    given = {key: value for key, value in after.items() if key not in _SERVER_FIELDS and key != "managedFields"}
    kept = {key: before[key] for key in _SERVER_FIELDS if key in before}
    meta = {**kept, **_without_empty(given)}
    same = {"apiVersion": old["apiVersion"], "kind": old["kind"]}
    return {**new, **same, "metadata": before if meta == before else meta}


def with_some(old: Json, asked: Json, fields: Set[str]) -> Json:
    """The old object with these fields of the requested metadata."""
    if not fields:
        return old
    given = {key: value for key, value in asked["metadata"].items() if key in fields}
    kept = {key: value for key, value in old["metadata"].items() if key not in fields}
    return updated(old, {**old, "metadata": {**kept, **given}})


def _without_empty(meta: Json) -> Json:
    return {key: value for key, value in meta.items() if value or key not in _OMITTED_IF_EMPTY}


def generation(old: Json, new: Json, kind: Generation) -> Json:
    """The changed object, with the generation incremented if the kind counts such a change."""
    if kind is Generation.NEVER or not _counts(old, new, kind):
        return new
    return raised(new)


def _counts(old: Json, new: Json, kind: Generation) -> bool:
    if kind is Generation.SPEC:
        return bool(old.get("spec") != new.get("spec"))
    ignored = {"metadata", "status"} if kind is Generation.ALL_BUT_STATUS else {"metadata"}
    return any(old.get(name) != new.get(name) for name in (old.keys() | new.keys()) - ignored)


def raised(body: Json) -> Json:
    """The object with its generation incremented, if it has one."""
    meta = body["metadata"]
    if "generation" not in meta:
        return body
    return {**body, "metadata": {**meta, "generation": meta["generation"] + 1}}


def check_preconditions(resource: Resource[Any], old: Json, given: Any, *, uid_counts: bool) -> None:
    """Raise Conflict if the request's resourceVersion differs from the object's, Invalid if the UID differs.

    In a write of a custom resource's status the UID is not checked, because the server restores all metadata
    first.
    """
    before, given = old["metadata"], given or {}
    uid, version = given.get("uid"), given.get("resourceVersion")
    if version and version != before["resourceVersion"]:
        raise changed_meanwhile(resource, before["name"])
    if uid_counts and uid and uid != before["uid"]:
        raise other_uid(resource, before["name"], uid)


def check_deletion(resource: Resource[Any], old: Json, uid: str, version: str) -> None:
    """Raise Conflict if the deletion's UID or resourceVersion, if given, differs from the object's."""
    before = old["metadata"]
    if uid and uid != before["uid"]:
        raise replaced_meanwhile(resource, before["name"], uid, before["uid"])
    if version and version != before["resourceVersion"]:
        raise other_version(resource, before["name"], version, before["resourceVersion"])


def propagated(body: Json, policy: Propagation) -> Json:
    """The object to be deleted, with the finalizer of the propagation policy.

    See deletionFinalizersForGarbageCollection in apiserver/pkg/registry/generic/registry/store.go (1.37).
    """
    if not policy:
        return body
    wanted = {"Background": [], "Foreground": [FOREGROUND], "Orphan": [ORPHAN]}[policy]
    meta = body["metadata"]
    others = [name for name in meta.get("finalizers") or () if name not in (FOREGROUND, ORPHAN)]
    return {**body, "metadata": _without_empty({**meta, "finalizers": [*others, *wanted]})}


def check_identity(resource: Resource[Any], body: Any, name: str, namespace: str | None) -> None:
    """Raise BadRequest if the body's kind, namespace or name differs from the request's."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise bad_request(f"a {resource.kind} is a JSON object with metadata")
    meta = body.get("metadata") or {}
    for field, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if body.get(field, wanted) != wanted:
            raise bad_request(f"{field} {body[field]!r} in the body does not match {wanted!r} of the request")
    if meta.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if name and meta.get("name", name) != name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")


def check_finalizers(resource: Resource[Any], old: Json, new: Json) -> None:
    """Raise Invalid if an object that is being deleted gets a new finalizer."""
    before, after = old["metadata"], new["metadata"]
    if not before.get("deletionTimestamp"):
        return
    added = sorted(set(after.get("finalizers") or ()) - set(before.get("finalizers") or ()))
    if added:
        why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        raise invalid(resource, before["name"], [Fault("metadata.finalizers", f"{why}{added}")])
