"""The garbage collector: what all of whose owners are gone goes too, in the background.

Of an object that is deleted in the foreground it deletes the dependents while the object is still there, which
goes when no dependent with `blockOwnerDeletion` is left. Of one that is deleted as an orphaning owner it takes the
owner references out of the dependents. An owner of a kind that is not served can't be found, and keeps what it
owns; custom kinds of others are served from their first object on. A deletion that admission refuses is tried
again, after ever longer pauses.
Facts: pkg/controller/garbagecollector (1.37); what it does about circles of owners is left out.
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
"""Between attempts at what may not be deleted."""


class Writes(Protocol):
    """What it asks the server for."""

    def collect(self, collection: Collection, name: Name, uid: str, policy: Propagation) -> bool:
        """Delete the object of that name if it still has that UID. False if admission refuses it."""
        ...

    def revise(self, collection: Collection, name: Name, metadata: Json) -> None:
        """Change so much of the object's metadata."""


class GarbageCollector:
    """Follows the store's changes. Acts in a later iteration of the event loop, never within a write, or so many
    seconds later as `lag` says each time: nothing upstream says how soon it comes."""

    def __init__(self, writes: Writes, lag: Callable[[], float]) -> None:
        self._writes = writes
        self._lag = lag
        self._alive: set[str] = set()
        self._waiting: dict[str, tuple[Collection, Name]] = {}
        """By UID: what is deleted in the foreground, and goes after its dependents."""
        self._served: set[tuple[str, str]] = set()
        self._dependents: dict[str, dict[str, tuple[Collection, Name]]] = defaultdict(dict)
        self._suspects: deque[tuple[Collection, Name]] = deque()
        self._refused: Counter[str] = Counter()
        """How often admission refused a deletion, by UID."""

    def observe(self, collection: Collection, change: Change) -> None:
        """Learn of a change, and look later at what follows from it."""
        self._served.add((collection.resource.api_version, collection.resource.kind))
        meta = change.last.meta
        uid, name = meta["uid"], (meta.get("namespace", ""), meta["name"])
        if change.old is not None:
            self._unlink(uid, change.old.meta, {} if change.new is None else meta)
        if change.new is None:
            self._alive.discard(uid)
            self._refused.pop(uid, None)
            self._waiting.pop(uid, None)
            for dependent in self._dependents.pop(uid, {}).values():
                self._suspect(dependent)
            return
        self._alive.add(uid)
        if meta.get("ownerReferences"):
            self._link(collection, name, uid, meta)
        if meta.get("deletionTimestamp"):
            self._being_deleted(collection, name, uid, meta)

    def _being_deleted(self, collection: Collection, name: Name, uid: str, meta: Json) -> None:
        finalizers = meta.get("finalizers") or ()
        if FOREGROUND in finalizers and uid not in self._waiting:
            self._waiting[uid] = collection, name
            for dependent in self._dependents.get(uid, {}).values():
                self._suspect(dependent)
        if FOREGROUND in finalizers or ORPHAN in finalizers:
            self._suspect((collection, name))

    def _link(self, collection: Collection, name: Name, uid: str, meta: Json) -> None:
        for owner in _owners(meta):
            if owner in self._alive:
                self._dependents[owner][uid] = (collection, name)
        if not all(map(self._is_solid, meta["ownerReferences"])):
            self._suspect((collection, name))

    def _unlink(self, uid: str, before: Json, after: Json) -> None:
        """The object is gone, or owned otherwise: what waited for it may go."""
        if before.get("ownerReferences") == after.get("ownerReferences"):
            return
        for owner in _owners(before):
            if owner in self._dependents:
                self._dependents[owner].pop(uid, None)
            if owner in self._waiting:
                self._suspect(self._waiting[owner])

    def _is_solid(self, owner: Json) -> bool:
        """Whether it stays, or may be there."""
        return not self._is_gone(owner) and owner["uid"] not in self._waiting

    def _is_gone(self, owner: Json) -> bool:
        group = owner["apiVersion"].rpartition("/")[0]
        served = not is_custom(group) or group == GROUP or (owner["apiVersion"], owner["kind"]) in self._served
        return served and owner["uid"] not in self._alive

    def _suspect(self, found: tuple[Collection, Name]) -> None:
        if not self._suspects:
            loop, lag = asyncio.get_running_loop(), self._lag()
            loop.call_later(lag, self._collect) if lag else loop.call_soon(self._collect)
        self._suspects.append(found)

    def _collect(self) -> None:
        suspects, self._suspects = self._suspects, deque()
        for collection, name in suspects:
            stored = collection.objects.get(name)
            if stored is None:
                continue
            if stored.meta.get("deletionTimestamp"):
                self._let_go(collection, name, stored)
            else:
                self._attempt(collection, name, stored.meta)

    def _attempt(self, collection: Collection, name: Name, meta: Json) -> None:
        """Delete what nobody owns that stays; of what somebody owns take out the other owners."""
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
                asyncio.get_running_loop().call_later(pause, self._suspect, (collection, name))

    def _let_go(self, collection: Collection, name: Name, stored: Stored) -> None:
        """What is being deleted: do for its dependents what it waits for."""
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
