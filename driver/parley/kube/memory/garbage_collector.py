"""The garbage collector: deletes objects whose owners are all gone, in the background.

If an object is deleted with foreground propagation, its dependents are deleted first, and the object itself when
no dependent with `blockOwnerDeletion` is left. If it is deleted with orphan propagation, the owner references to
it are removed from its dependents. An owner of a kind that is not served can't be looked up, so its dependents are
kept; other groups' custom kinds are served once they have had an object. A deletion that admission refuses is
retried with exponential backoff.
Source: pkg/controller/garbagecollector (1.37). Its handling of ownership cycles is left out.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Protocol

from parley.api.names import GROUP
from parley.kube.backoff import Backoff
from parley.kube.memory.kinds import Json, is_custom
from parley.kube.memory.metadata import FOREGROUND, ORPHAN, Propagation
from parley.kube.memory.store import Collection, Name
from parley.kube.memory.watch_cache import Change, Stored

REFUSED = Backoff(first=0.005, longest=1000.0)
"""Between retries of a deletion that admission refuses."""


class Writes(Protocol):
    """The server's operations that the garbage collector uses."""

    def collect(self, collection: Collection, name: Name, uid: str, policy: Propagation) -> bool:
        """Delete the object of that name if it still has that UID. Returns False if admission refuses it."""
        ...

    def revise(self, collection: Collection, name: Name, metadata: Json) -> None:
        """Merge these fields into the object's metadata."""


class GarbageCollector:
    """Follows the store's changes. Acts in a later iteration of the event loop, never within a write, or after
    `lag()` seconds, evaluated each time: upstream guarantees no time."""

    def __init__(self, writes: Writes, lag: Callable[[], float]) -> None:
        self._writes = writes
        self._lag = lag
        self._existing: set[str] = set()
        self._waiting: dict[str, tuple[Collection, Name]] = {}
        """Objects deleted in the foreground, which wait for their dependents, by UID."""
        self._served: set[tuple[str, str]] = set()
        self._dependents: dict[str, dict[str, tuple[Collection, Name]]] = defaultdict(dict)
        self._queue: deque[tuple[Collection, Name]] = deque()
        self._refused: Counter[str] = Counter()
        """The number of refused deletions, by UID."""

    def observe(self, collection: Collection, change: Change) -> None:
        """Record a change, and enqueue the objects that it affects."""
        self._served.add((collection.resource.api_version, collection.resource.kind))
        meta = change.last.meta
        uid, name = meta["uid"], (meta.get("namespace", ""), meta["name"])
        if change.old is not None:
            self._unlink(uid, change.old.meta, {} if change.new is None else meta)
        if change.new is None:
            self._existing.discard(uid)
            self._refused.pop(uid, None)
            self._waiting.pop(uid, None)
            for dependent in self._dependents.pop(uid, {}).values():
                self._enqueue(dependent)
            return
        self._existing.add(uid)
        if meta.get("ownerReferences"):
            self._link(collection, name, uid, meta)
        if meta.get("deletionTimestamp"):
            self._observe_deletion(collection, name, uid, meta)

    def _observe_deletion(self, collection: Collection, name: Name, uid: str, meta: Json) -> None:
        finalizers = meta.get("finalizers") or ()
        if FOREGROUND in finalizers and uid not in self._waiting:
            self._waiting[uid] = collection, name
            for dependent in self._dependents.get(uid, {}).values():
                self._enqueue(dependent)
        if FOREGROUND in finalizers or ORPHAN in finalizers:
            self._enqueue((collection, name))

    def _link(self, collection: Collection, name: Name, uid: str, meta: Json) -> None:
        for owner in _owners(meta):
            if owner in self._existing:
                self._dependents[owner][uid] = (collection, name)
        if not all(map(self._is_solid, meta["ownerReferences"])):
            self._enqueue((collection, name))

    def _unlink(self, uid: str, before: Json, after: Json) -> None:
        """Remove the object from its former owners' dependents; owners that waited for it are checked again."""
        if before.get("ownerReferences") == after.get("ownerReferences"):
            return
        for owner in _owners(before):
            if owner in self._dependents:
                self._dependents[owner].pop(uid, None)
            if owner in self._waiting:
                self._enqueue(self._waiting[owner])

    def _is_solid(self, owner: Json) -> bool:
        """Whether the owner exists, or may exist, and does not wait for its dependents."""
        return not self._is_gone(owner) and owner["uid"] not in self._waiting

    def _is_gone(self, owner: Json) -> bool:
        group = owner["apiVersion"].rpartition("/")[0]
        served = not is_custom(group) or group == GROUP or (owner["apiVersion"], owner["kind"]) in self._served
        return served and owner["uid"] not in self._existing

    def _enqueue(self, found: tuple[Collection, Name]) -> None:
        if not self._queue:
            loop, lag = asyncio.get_running_loop(), self._lag()
            loop.call_later(lag, self._process_queue) if lag else loop.call_soon(self._process_queue)
        self._queue.append(found)

    def _process_queue(self) -> None:
        queued, self._queue = self._queue, deque()
        for collection, name in queued:
            stored = collection.objects.get(name)
            if stored is None:
                continue
            if stored.meta.get("deletionTimestamp"):
                self._process_deletion(collection, name, stored)
            else:
                self._attempt_to_delete(collection, name, stored.meta)

    def _attempt_to_delete(self, collection: Collection, name: Name, meta: Json) -> None:
        """Delete an object without solid owners; otherwise remove the references to its other owners."""
        owners = meta.get("ownerReferences") or ()
        solid = [owner for owner in owners if self._is_solid(owner)]
        if solid and len(solid) < len(owners):
            self._writes.revise(collection, name, {"ownerReferences": solid})
        elif owners and not solid:
            waited_for = any(owner["uid"] in self._waiting for owner in owners)
            foreground = waited_for and self._dependents.get(meta["uid"])
            policy: Propagation = "Foreground" if foreground else "Background"
            if not self._writes.collect(collection, name, meta["uid"], policy):
                self._refused[meta["uid"]] += 1
                pause = REFUSED.delay(self._refused[meta["uid"]])
                asyncio.get_running_loop().call_later(pause, self._enqueue, (collection, name))

    def _process_deletion(self, collection: Collection, name: Name, stored: Stored) -> None:
        """Orphan the dependents of an object that is being deleted, or check that they are gone; then remove its
        finalizer."""
        uid, finalizers = stored.meta["uid"], stored.meta.get("finalizers") or ()
        done = ""
        if ORPHAN in finalizers:
            for where, dependent in list(self._dependents.get(uid, {}).values()):
                kept = [owner for owner in _references(where, dependent) if owner["uid"] != uid]
                self._writes.revise(where, dependent, {"ownerReferences": kept})
            done = ORPHAN
        elif FOREGROUND in finalizers and not any(self._blocking(uid)):
            done = FOREGROUND
        if done:
            left = [finalizer for finalizer in finalizers if finalizer != done]
            self._writes.revise(collection, name, {"finalizers": left})

    def _blocking(self, uid: str) -> Iterator[bool]:
        for where, dependent in self._dependents.get(uid, {}).values():
            for owner in _references(where, dependent):
                yield owner["uid"] == uid and bool(owner.get("blockOwnerDeletion"))


def _references(collection: Collection, name: Name) -> list[Json]:
    return collection.objects[name].meta.get("ownerReferences") or []


def _owners(meta: Json) -> list[str]:
    return [owner["uid"] for owner in meta.get("ownerReferences") or ()]
