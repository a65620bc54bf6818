"""The garbage collector: what all of whose owners are gone goes too, in the background.

`blockOwnerDeletion` and foreground deletion are left out. An owner of a kind that is not served can't be found,
and keeps what it owns; custom kinds of others are served from their first object on.
Facts: pkg/controller/garbagecollector (1.37).
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable

from parley.api.names import GROUP
from parley.kube.memory.kinds import Json, is_custom
from parley.kube.memory.store import Collection, Name
from parley.kube.memory.watch_cache import Change

Delete = Callable[[Collection, Name, str], None]
"""Deletes the object of that name if it still has that UID."""


class GarbageCollector:
    """Follows the store's changes. Deletes in a later iteration of the event loop, never within a write."""

    def __init__(self, delete: Delete) -> None:
        self._delete = delete
        self._alive: set[str] = set()
        self._served: set[tuple[str, str]] = set()
        self._dependents: dict[str, dict[str, tuple[Collection, Name]]] = defaultdict(dict)
        self._suspects: deque[tuple[Collection, Name]] = deque()

    def observe(self, collection: Collection, change: Change) -> None:
        """Learn of a change, and look later at what it may have orphaned."""
        self._served.add((collection.resource.api_version, collection.resource.kind))
        meta = change.last.meta
        uid, name = meta["uid"], (meta.get("namespace", ""), meta["name"])
        if change.new is None:
            self._alive.discard(uid)
            self._forget(uid, change.old.meta if change.old else {})
            for dependent in self._dependents.pop(uid, {}).values():
                self._suspect(dependent)
            return
        self._alive.add(uid)
        if meta.get("ownerReferences"):
            self._link(collection, name, uid, meta)

    def _link(self, collection: Collection, name: Name, uid: str, meta: Json) -> None:
        for owner in _owners(meta):
            if owner in self._alive:
                self._dependents[owner][uid] = (collection, name)
        if self._is_garbage(meta):
            self._suspect((collection, name))

    def _is_garbage(self, meta: Json) -> bool:
        """Whether the object has owners, none of which is there, or may be there."""
        owners = meta.get("ownerReferences") or ()
        return bool(owners) and all(self._is_gone(owner) for owner in owners)

    def _is_gone(self, owner: Json) -> bool:
        group = owner["apiVersion"].rpartition("/")[0]
        served = not is_custom(group) or group == GROUP or (owner["apiVersion"], owner["kind"]) in self._served
        return served and owner["uid"] not in self._alive

    def _forget(self, uid: str, meta: Json) -> None:
        for owner in _owners(meta):
            if owner in self._dependents:
                self._dependents[owner].pop(uid, None)

    def _suspect(self, found: tuple[Collection, Name]) -> None:
        if not self._suspects:
            asyncio.get_running_loop().call_soon(self._collect)
        self._suspects.append(found)

    def _collect(self) -> None:
        suspects, self._suspects = self._suspects, deque()
        for collection, name in suspects:
            stored = collection.objects.get(name)
            if stored is None or stored.meta.get("deletionTimestamp"):
                continue
            if self._is_garbage(stored.meta):
                self._delete(collection, name, stored.meta["uid"])


def _owners(meta: Json) -> list[str]:
    return [owner["uid"] for owner in meta.get("ownerReferences") or ()]
