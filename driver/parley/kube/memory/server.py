"""The server's verbs: what a request does to the store, or why it is refused. No I/O, no waiting.

The parts: `metadata` (what only the server writes), `patches` and `managed_fields` (how a request becomes an
object), `validation` (whether the object is taken), `store` and `watch_cache` (where it goes), `garbage_collector`
(what follows).
"""

import random
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import orjson

from parley.api.resources import Resource
from parley.kube.client import Client
from parley.kube.clock import Clock, rfc3339, utc
from parley.kube.memory import evictions, managed_fields, metadata, pods
from parley.kube.memory.errors import (
    Fault,
    already_exists,
    bad_request,
    conflict,
    invalid,
    no_manager,
    no_such_path,
    no_target,
    not_found,
    version_at_creation,
)
from parley.kube.memory.garbage_collector import GarbageCollector
from parley.kube.memory.kinds import Json, Traits, traits
from parley.kube.memory.managed_fields import Manager, Owners
from parley.kube.memory.metadata import Propagation
from parley.kube.memory.patches import applied, conformed, merge_patch
from parley.kube.memory.store import Collection, Name, Store
from parley.kube.memory.transport import MemoryTransport
from parley.kube.memory.validation import check
from parley.kube.memory.watch_cache import Stored

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
        self._garbage = GarbageCollector(self, lambda: self.garbage_lag())
        self.store = Store(history, self._garbage.observe)
        self.garbage_lag: Callable[[], float] = lambda: 0.0
        """Seconds until the garbage collector looks at what has lost its owners."""
        self.gc_forbidden: Callable[[Resource[Any], Json], bool] = lambda _resource, _body: False
        """Whether an admission policy keeps the garbage collector from deleting an object."""
        self.bookmark_interval = bookmark_interval
        self.watch_round = 0
        """Rises when all watches are ended; see `end_watches`."""

    @property
    def resource_version(self) -> int:
        """The latest; it rises with each change of any object."""
        return self.store.version

    def client(self, name: str = "parley") -> Client:
        """A client. `name` is the field manager of writes that name none."""
        return Client(MemoryTransport(self, name))

    def end_watches(self) -> None:
        """End every watch, as a server does that restarts: they can continue from where they were."""
        self.watch_round += 1
        for collection in self.store.collections():
            collection.history.wake()

    def forget_history(self) -> None:
        """Nobody can continue from a version before now: who tries gets Expired."""
        for collection in self.store.collections():
            collection.history.forget()

    def get(self, resource: Resource[Any], name: str, namespace: str | None) -> Stored:
        """The object as stored."""
        stored = self.store.collection(resource).objects.get((namespace or "", name))
        if stored is None:
            raise not_found(resource, name)
        return stored

    def dry_run(self, resource: Resource[Any], body: Json, namespace: str | None) -> None:
        """Raise what `create` would raise, and store nothing."""
        _, new = self._new(resource, body, namespace)
        check(resource, traits(resource), None, new)

    def create(self, resource: Resource[Any], body: Json, namespace: str | None, manager: str) -> Stored:
        """Store a new object."""
        about, new = self._new(resource, body, namespace)
        owners = managed_fields.after_update({}, Manager(manager, managed_fields.UPDATE, ""), {}, new, about)
        return self._add(resource, about, new, owners)

    def _new(self, resource: Resource[Any], body: Json, namespace: str | None) -> tuple[Traits, Json]:
        _check_scope(resource, namespace)
        metadata.check_identity(resource, body, "", namespace)
        about, meta = traits(resource), body.get("metadata") or {}
        if meta.get("resourceVersion"):
            raise version_at_creation()
        name = meta.get("name") or self._generated(resource, meta)
        if (namespace or "", name) in self.store.collection(resource).objects:
            raise already_exists(resource, name)
        return about, self._initial(resource, about, body, name, namespace)

    def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Any,
        namespace: str | None,
        manager: Manager,
        *,
        dry: bool = False,
    ) -> Stored:
        """Change an object, or its subresource that the manager writes, by a merge patch; not if it is a `dry`
        run."""
        about = _patchable(resource, namespace, manager.subresource)
        stored = self.get(resource, name, namespace)
        if not isinstance(patch, dict):
            raise bad_request("a merge patch is a JSON object")
        asked = merge_patch(stored.body, patch)
        metadata.check_identity(resource, asked, name, namespace)
        metadata.check_preconditions(
            resource, stored.body, asked.get("metadata"), uid_counts=not (manager.subresource and about.custom)
        )
        new = conformed(about, stored.body, asked, manager.subresource)
        if dry:
            check(resource, about, stored.body, new)
            return Stored(new, orjson.dumps(new), stored.owners)
        owners = managed_fields.after_update(stored.owners, manager, stored.body, new, about)
        return self._change(resource, about, stored, new, owners)

    def apply(
        self,
        resource: Resource[Any],
        name: str,
        config: Any,
        namespace: str | None,
        manager: Manager,
        *,
        force: bool,
    ) -> Stored:
        """Change an object by server-side apply, or create it."""
        about = _patchable(resource, namespace, manager.subresource)
        if not manager.name:
            raise no_manager()
        metadata.check_identity(resource, config, name, namespace)
        stored = self.store.collection(resource).objects.get((namespace or "", name))
        config = applied(about, about.settle(config), manager.subresource)
        if stored is None:
            return self._apply_new(resource, about, name, config, namespace, manager)
        metadata.check_preconditions(
            resource, stored.body, config.get("metadata"), uid_counts=not (manager.subresource and about.custom)
        )
        merged, owners = managed_fields.apply(
            resource, about, stored.body, stored.owners, manager, config, force=force
        )
        # What is left of a field that lost all its parts is null, which the server of a CRD does not take.
        if faults := about.nulls(merged):
            raise invalid(resource, name, faults)
        new = conformed(about, stored.body, merged, manager.subresource)
        return self._change(resource, about, stored, new, owners)

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        policy: Propagation = "",
    ) -> None:
        """Delete an object, or mark it as being deleted. Pods are marked in any case, as everybody sees."""
        stored = self.get(resource, name, namespace)
        metadata.check_deletion(resource, stored.body, uid, resource_version)
        seconds = pods.grace(stored.body, grace) if _is_pod(resource) else 0
        if seconds is None:
            return
        body = metadata.propagated(stored.body, policy)
        held = bool(body["metadata"].get("finalizers"))
        if held or _is_pod(resource):
            self._mark(resource, stored, body, seconds)
        if not seconds and not held:
            self.store.remove(self.store.collection(resource), _name(stored.meta))

    def post(
        self, resource: Resource[Any], name: str, subresource: str, body: Json, namespace: str | None
    ) -> Json:
        """Bind or evict a pod; other subresources are not there."""
        if not _is_pod(resource) or subresource not in ("binding", "eviction"):
            raise no_such_path()
        if subresource == "binding":
            self._bind(resource, name, body, namespace)
        else:
            self._evict(resource, name, body.get("deleteOptions") or {}, namespace)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _evict(self, resource: Resource[Any], name: str, options: Json, namespace: str | None) -> None:
        required = options.get("preconditions") or {}
        uid, version = required.get("uid", ""), required.get("resourceVersion", "")
        stored = self.get(resource, name, namespace)
        metadata.check_deletion(resource, stored.body, uid, version)
        budgets = self.store.collection(evictions.BUDGETS)
        budget = evictions.budget_for(stored.body, [each.body for each in budgets.within(namespace)])
        if options.get("dryRun"):
            return
        if budget is not None:
            known = budgets.objects[_name(budget["metadata"])]
            left = evictions.taken_from(budget, name, rfc3339(self._clock()))
            self.store.write(budgets, _name(budget["metadata"]), left, known.owners)
        self.delete(resource, name, namespace, uid, version, options.get("gracePeriodSeconds"))

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
        _, owners = managed_fields.apply(resource, about, new, {}, manager, config, force=False)
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

    def _mark(self, resource: Resource[Any], stored: Stored, body: Json, grace: int) -> None:
        """Store the object, whose finalizers may be new, as one that is being deleted."""
        meta = body["metadata"]
        known = meta.get("deletionGracePeriodSeconds")
        if not meta.get("deletionTimestamp"):
            body = metadata.raised(body)
        if not meta.get("deletionTimestamp") or (known is not None and grace < known):
            when = rfc3339(self._clock() + timedelta(seconds=grace))
            marked = {"deletionTimestamp": when, "deletionGracePeriodSeconds": grace}
            body = {**body, "metadata": {**body["metadata"], **marked}}
        if body != stored.body:
            self.store.write(self.store.collection(resource), _name(meta), body, stored.owners)

    def collect(self, collection: Collection, name: Name, uid: str, policy: Propagation) -> bool:
        """A deletion of the garbage collector's. False if admission refuses it."""
        if self.gc_forbidden(collection.resource, collection.objects[name].body):
            return False
        self.delete(collection.resource, name[1], name[0] or None, uid, policy=policy)
        return True

    def revise(self, collection: Collection, name: Name, metadata: Json) -> None:
        """A change of metadata of the garbage collector's."""
        manager = Manager("garbage-collector", managed_fields.UPDATE, "")
        self.patch(collection.resource, name[1], {"metadata": metadata}, name[0] or None, manager)

    def _generated(self, resource: Resource[Any], meta: Mapping[str, Any]) -> str:
        prefix = meta.get("generateName")
        if not prefix:
            raise invalid(
                resource, "", [Fault("metadata.name", "Required value: name or generateName is required")]
            )
        return str(prefix)[:_MAX_GENERATED] + "".join(self._random.choices(_LETTERS, k=5))


def _patchable(resource: Resource[Any], namespace: str | None, subresource: str) -> Traits:
    """The kind's traits. Raises a server's error for a path at which nothing can be patched."""
    _check_scope(resource, namespace)
    about = traits(resource)
    if subresource and not (subresource == "status" and about.status):
        raise no_such_path()
    return about


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
