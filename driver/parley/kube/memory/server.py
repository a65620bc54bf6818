"""The server's verbs: what a request does to the store, or why it is refused. No I/O, no waiting.

The parts: `metadata` (what only the server writes), `patches` and `ownership` (how a request becomes an object),
`validation` (whether the object is taken), `store` and `history` (where it goes), `garbage` (what follows).
"""

import random
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import orjson

from parley.api.resources import Resource
from parley.kube.client import PatchType
from parley.kube.clock import Clock, rfc3339, utc
from parley.kube.memory import metadata, ownership, patches, pods
from parley.kube.memory.client import MemoryClient
from parley.kube.memory.garbage import GarbageCollector
from parley.kube.memory.history import Stored
from parley.kube.memory.kinds import Json, Traits, traits
from parley.kube.memory.ownership import Manager, Owners
from parley.kube.memory.refusals import (
    Fault,
    already_exists,
    bad_request,
    conflict,
    invalid,
    no_manager,
    no_such_path,
    no_target,
    not_found,
    other_version,
    replaced_meanwhile,
    unsupported_patch,
    version_at_creation,
)
from parley.kube.memory.store import Collection, Name, Store
from parley.kube.memory.validation import check

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED = 58
"""What remains of `generateName` before the five random letters."""


class MemoryServer:
    """An API server in memory.

    `clock` gives the time for timestamps. Of each kind at least `history` changes are kept for watches to
    continue from. Every `bookmark_interval` seconds without a change a watch gets a bookmark. UIDs and generated
    names are the same in every run with the same `seed`.
    """

    def __init__(
        self,
        clock: Clock = utc,
        *,
        history: int = 10_000,
        bookmark_interval: float = 60.0,
        seed: int = 0,
    ) -> None:
        self._clock = clock
        self._random = random.Random(seed)
        self._garbage = GarbageCollector(self._collect)
        self.store = Store(history, self._garbage.observe)
        self.bookmark_interval = bookmark_interval
        self.watch_round = 0
        """Rises when all watches are ended; see `end_watches`."""

    @property
    def resource_version(self) -> int:
        """The latest; it rises with each change of any object."""
        return self.store.version

    def client(self, name: str = "parley") -> MemoryClient:
        """A client. `name` is the field manager of writes that name none."""
        return MemoryClient(self, name)

    def end_watches(self) -> None:
        """End every watch, as a server does that restarts: they can continue from where they were."""
        self.watch_round += 1
        for collection in self.store.collections():
            collection.history.wake()

    def forget_history(self) -> None:
        """Nobody can continue from a version before now: who tries is told that it expired."""
        for collection in self.store.collections():
            collection.history.forget()

    def get(self, resource: Resource[Any], name: str, namespace: str | None) -> Stored:
        """The object as stored."""
        stored = self.store.collection(resource).objects.get((namespace or "", name))
        if stored is None:
            raise not_found(resource, name)
        return stored

    def create(self, resource: Resource[Any], body: Json, namespace: str | None, manager: str) -> Stored:
        """Store a new object."""
        _check_scope(resource, namespace)
        metadata.check_identity(resource, body, "", namespace)
        about, meta = traits(resource), body.get("metadata") or {}
        if meta.get("resourceVersion"):
            raise version_at_creation()
        name = meta.get("name") or self._generated(resource, meta)
        if (namespace or "", name) in self.store.collection(resource).objects:
            raise already_exists(resource, name)
        new = self._initial(resource, about, body, name, namespace)
        owners = ownership.after_update({}, Manager(manager, ownership.UPDATE, ""), {}, new, about)
        return self._add(resource, about, new, owners)

    def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Any,
        namespace: str | None,
        patch_type: PatchType,
        subresource: str,
        manager: str,
        force: bool,
    ) -> Stored:
        """Change an object, or create it by applying."""
        _check_scope(resource, namespace)
        about = traits(resource)
        if subresource and not (subresource == "status" and about.status):
            raise no_such_path()
        if patch_type is PatchType.APPLY:
            return self._apply(
                resource, name, patch, namespace, Manager(manager, ownership.APPLY, subresource), force
            )
        stored = self.get(resource, name, namespace)
        asked = _patched(resource, about, stored.body, patch, patch_type)
        metadata.check_identity(resource, asked, name, namespace)
        metadata.check_preconditions(
            resource, stored.body, asked.get("metadata"), uid_counts=not (subresource and about.custom)
        )
        new = _conformed(about, stored.body, asked, subresource)
        writer = Manager(manager, ownership.UPDATE, subresource)
        owners = ownership.after_update(stored.owners, writer, stored.body, new, about)
        return self._change(resource, about, stored, new, owners)

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
    ) -> None:
        """Delete an object, or mark it as being deleted. Pods are marked in any case, as everybody sees."""
        stored = self.get(resource, name, namespace)
        meta = stored.meta
        if uid and uid != meta["uid"]:
            raise replaced_meanwhile(resource, name, uid, meta["uid"])
        if resource_version and resource_version != meta["resourceVersion"]:
            raise other_version(resource, name, resource_version, meta["resourceVersion"])
        seconds = pods.grace(stored.body, grace) if _is_pod(resource) else 0
        if meta.get("finalizers") or _is_pod(resource):
            self._mark(resource, stored, seconds)
        if not seconds and not meta.get("finalizers"):
            self.store.remove(self.store.collection(resource), _name(meta))

    def post(
        self, resource: Resource[Any], name: str, subresource: str, body: Json, namespace: str | None
    ) -> Json:
        """Bind or evict a pod; other subresources are not there."""
        if not _is_pod(resource) or subresource not in ("binding", "eviction"):
            raise no_such_path()
        if subresource == "binding":
            self._bind(resource, name, body, namespace)
        else:
            options = body.get("deleteOptions") or {}
            required = options.get("preconditions") or {}
            self.delete(
                resource,
                name,
                namespace,
                required.get("uid", ""),
                required.get("resourceVersion", ""),
                options.get("gracePeriodSeconds"),
            )
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _bind(self, resource: Resource[Any], name: str, body: Json, namespace: str | None) -> None:
        stored, given = self.get(resource, name, namespace), body.get("metadata") or {}
        uid, version = given.get("uid"), given.get("resourceVersion")
        node = (body.get("target") or {}).get("name", "")
        if not node:
            raise no_target()
        if uid and uid != stored.meta["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.meta['uid']}"
        elif version and version != stored.meta["resourceVersion"]:
            actual = stored.meta["resourceVersion"]
            why = (
                f"Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta:"
                f" {actual}"
            )
        else:
            why = pods.why_not_bound(stored.body)
        if why:
            raise conflict(resource, name, why, "binding")
        annotations = given.get("annotations") or {}
        new = pods.bound(stored.body, node, annotations, rfc3339(self._clock()))
        self.store.write(self.store.collection(resource), _name(stored.meta), new, stored.owners)

    def _apply(
        self,
        resource: Resource[Any],
        name: str,
        config: Any,
        namespace: str | None,
        manager: Manager,
        force: bool,
    ) -> Stored:
        if not manager.name:
            raise no_manager()
        metadata.check_identity(resource, config, name, namespace)
        about = traits(resource)
        stored = self.store.collection(resource).objects.get((namespace or "", name))
        config = _own_part(about, about.settle(config), manager.subresource)
        if stored is None:
            return self._apply_new(resource, about, name, config, namespace, manager)
        metadata.check_preconditions(
            resource, stored.body, config.get("metadata"), uid_counts=not (manager.subresource and about.custom)
        )
        merged, owners = ownership.apply(resource, about, stored.body, stored.owners, manager, config, force=force)
        # What is left of a field that lost all its parts is null, which the server of a CRD does not take.
        if faults := about.nulls(merged):
            raise invalid(resource, name, faults)
        new = _conformed(about, stored.body, merged, manager.subresource)
        return self._change(resource, about, stored, new, owners)

    def _apply_new(
        self,
        resource: Resource[Any],
        about: Traits,
        name: str,
        config: Json,
        namespace: str | None,
        manager: Manager,
    ) -> Stored:
        if manager.subresource:
            raise not_found(resource, name)
        if (config.get("metadata") or {}).get("uid"):
            raise conflict(
                resource,
                name,
                f"uid mismatch: the provided object specified uid {config['metadata']['uid']}, "
                "and no existing object was found",
            )
        new = self._initial(resource, about, config, name, namespace)
        _, owners = ownership.apply(resource, about, new, {}, manager, config, force=False)
        return self._add(resource, about, new, owners)

    def _initial(
        self, resource: Resource[Any], about: Traits, body: Json, name: str, namespace: str | None
    ) -> Json:
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **about.settle(body)}
        if about.status and not about.status_on_create:
            typed.pop("status", None)
        typed.setdefault("metadata", {})
        uid = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        new = metadata.created(typed, about, name, namespace, uid, rfc3339(self._clock()))
        return about.defaults(new)

    def _add(self, resource: Resource[Any], about: Traits, new: Json, owners: Owners) -> Stored:
        check(resource, about, None, new)
        return self.store.write(self.store.collection(resource), _name(new["metadata"]), new, owners)

    def _change(self, resource: Resource[Any], about: Traits, stored: Stored, new: Json, owners: Owners) -> Stored:
        """Store the changed object. What changes nothing is no write; what loses its last finalizer goes."""
        old = stored.body
        if new == old and owners == stored.owners:
            return stored
        metadata.check_finalizers(resource, old, new)
        check(resource, about, old, new)
        new = metadata.generation(old, new, about.generation)
        collection, name = self.store.collection(resource), _name(new["metadata"])
        if _is_over(new["metadata"]):
            self.store.remove(collection, name)
            return Stored(new, orjson.dumps(new), owners)
        return self.store.write(collection, name, new, owners)

    def _mark(self, resource: Resource[Any], stored: Stored, grace: int) -> None:
        meta = stored.meta
        known = meta.get("deletionGracePeriodSeconds")
        if meta.get("deletionTimestamp") and (known is None or grace >= known):
            return
        when = rfc3339(self._clock() + timedelta(seconds=grace))
        marked = {**meta, "deletionTimestamp": when, "deletionGracePeriodSeconds": grace}
        body = {**stored.body, "metadata": marked}
        if not meta.get("deletionTimestamp"):
            body = metadata.raised(body)
        self.store.write(self.store.collection(resource), _name(meta), body, stored.owners)

    def _collect(self, collection: Collection, name: Name, uid: str) -> None:
        self.delete(collection.resource, name[1], name[0] or None, uid)

    def _generated(self, resource: Resource[Any], meta: Mapping[str, Any]) -> str:
        prefix = meta.get("generateName")
        if not prefix:
            raise invalid(
                resource, "", [Fault("metadata.name", "Required value: name or generateName is required")]
            )
        return str(prefix)[:_MAX_GENERATED] + "".join(self._random.choices(_LETTERS, k=5))


def _patched(resource: Resource[Any], about: Traits, old: Json, patch: Any, patch_type: PatchType) -> Json:
    """The object that the patch asks for."""
    if patch_type is PatchType.JSON:
        if not isinstance(patch, Sequence) or isinstance(patch, str):
            raise bad_request("a JSON patch is a list of operations")
        return patches.json_patch(old, patch)
    if not isinstance(patch, dict):
        raise bad_request(f"a {patch_type.value} patch is a JSON object")
    if patch_type is PatchType.STRATEGIC and about.custom:
        raise unsupported_patch(resource)
    merged = (
        patches.strategic_patch(old, patch, about)
        if patch_type is PatchType.STRATEGIC
        else (patches.merge_patch(old, patch))
    )
    return dict(merged)


def _conformed(about: Traits, old: Json, asked: Json, subresource: str) -> Json:
    """What of the asked object this request may change: the status alone, or all but the status."""
    if subresource == "status":
        kept = metadata.with_some(old, asked, about.metadata_with_status)
        return about.adjust(old, _with_status(kept, about.settle({"status": asked.get("status")})))
    if about.status:
        asked = _with_status(asked, old)
    return metadata.updated(old, about.settle(asked))


def _with_status(body: Json, other: Json) -> Json:
    """The body with the other's status, if it has any."""
    rest = {name: value for name, value in body.items() if name != "status"}
    return {**rest, "status": other["status"]} if "status" in other else rest


def _own_part(about: Traits, config: Json, subresource: str) -> Json:
    """What of an applied configuration counts, as in `_conformed`."""
    if subresource == "status":
        meta = {
            key: value for key, value in config.get("metadata", {}).items() if key in ("uid", "resourceVersion")
        }
        return {"metadata": meta, **({"status": config["status"]} if "status" in config else {})}
    if about.status:
        return {name: value for name, value in config.items() if name != "status"}
    return config


def _check_scope(resource: Resource[Any], namespace: str | None) -> None:
    if resource.namespaced and not namespace:
        raise bad_request(f"{resource.plural} are namespaced: name the namespace")
    if namespace and not resource.namespaced:
        raise bad_request(f"{resource.plural} are not namespaced: name no namespace")


def _is_pod(resource: Resource[Any]) -> bool:
    return (resource.group, resource.plural) == ("", "pods")


def _is_over(meta: Json) -> bool:
    """Whether a marked object has nothing left to wait for."""
    return bool(
        meta.get("deletionTimestamp") and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
    )


def _name(meta: Json) -> Name:
    return meta.get("namespace", ""), meta["name"]
