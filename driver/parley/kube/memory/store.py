"""The object store: a collection with a history for each kind, and one increasing resourceVersion for all.

It checks no rules: `server` decides what may be written.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from parley.api.resources import Resource
from parley.kube.memory.kinds import Json
from parley.kube.memory.watch_cache import Change, History, Stored

Name = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""


@dataclass(frozen=True)
class Collection:
    """The objects of one kind. `resource` is the kind, whose objects are decoded as dictionaries."""

    resource: Resource[Json]
    objects: dict[Name, Stored]
    history: History

    def within(self, namespace: str | None) -> Iterator[Stored]:
        """The objects of one namespace, or of all, sorted by name."""
        for name in sorted(self.objects):
            if not namespace or name[0] == namespace:
                yield self.objects[name]


class Store:
    """All collections. `on_change` is called after each change, with its collection."""

    def __init__(self, history: int, on_change: Callable[[Collection, Change], None]) -> None:
        self._history = history
        self._on_change = on_change
        self._collections: dict[tuple[str, str], Collection] = {}
        self.version = 1

    def collection(self, resource: Resource[Any]) -> Collection:
        """The kind's collection; for a new kind an empty one is created."""
        key = (resource.group, resource.plural)
        if key not in self._collections:
            self._collections[key] = Collection(resource.untyped(), {}, History(self._history))
        return self._collections[key]

    def collections(self) -> list[Collection]:
        """The collections of all kinds that were requested so far."""
        return list(self._collections.values())

    def write(self, collection: Collection, name: Name, body: Json, owners: Any) -> Stored:
        """Store the object under the next resourceVersion."""
        old = collection.objects.get(name)
        new = self._stored(body, owners)
        collection.objects[name] = new
        self._record(collection, Change(self.version, old, new, new))
        return new

    def remove(self, collection: Collection, name: Name) -> None:
        """Remove the object. Its deletion has a resourceVersion too."""
        old = collection.objects.pop(name)
        last = self._stored(old.body, old.owners)
        self._record(collection, Change(self.version, old, None, last))

    def _stored(self, body: Json, owners: Any) -> Stored:
        self.version += 1
        versioned = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return Stored(versioned, orjson.dumps(versioned), owners)

    def _record(self, collection: Collection, change: Change) -> None:
        collection.history.append(change)
        self._on_change(collection, change)
