"""An informer's cache: objects of one kind by namespace and name, with indexes; `informer` fills it."""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, ValuesView
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

Key = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""

IndexKeys = Callable[[T], Iterable[Hashable]]
"""The keys under which an index finds an object; none leaves it out."""


class ObjectState(NamedTuple):
    """The identity of an object and of its state."""

    key: Key
    uid: str
    resource_version: str


def identity(item: Any) -> ObjectState:
    """The identity of a struct, a model or a plain dictionary with `metadata`."""
    if isinstance(item, dict):
        meta = item.get("metadata", {})
        key = (meta.get("namespace", ""), meta.get("name", ""))
        return ObjectState(key, meta.get("uid", ""), meta.get("resourceVersion", ""))
    meta = item.metadata
    return ObjectState((meta.namespace, meta.name), meta.uid, meta.resource_version)


class _Index(Generic[T]):
    def __init__(self, keys: IndexKeys[T]) -> None:
        self._keys = keys
        self._items: dict[Hashable, dict[Key, T]] = {}

    def put(self, key: Key, item: T) -> None:
        for index_key in self._keys(item):
            self._items.setdefault(index_key, {})[key] = item

    def remove(self, key: Key, item: T) -> None:
        for index_key in self._keys(item):
            items = self._items.get(index_key, {})
            items.pop(key, None)
            if not items:
                self._items.pop(index_key, None)

    def get(self, index_key: Hashable) -> Mapping[Key, T]:
        return self._items.get(index_key, {})


class Cache(Generic[T]):
    """The objects of one kind, in the order in which their names were first added."""

    def __init__(self) -> None:
        self._items: dict[Key, T] = {}
        self._indexes: dict[str, _Index[T]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Key) -> T | None:
        """The object with that key, None if there is none."""
        return self._items.get(key)

    def values(self) -> ValuesView[T]:
        """All objects; a view, so copy it before anything awaits."""
        return self._items.values()

    def absent(self, present: Container[Key]) -> list[Key]:
        """The keys in the cache that are not in `present`."""
        return [key for key in self._items if key not in present]

    def put(self, key: Key, item: T) -> None:
        """Adds the object, or replaces the one with that key."""
        old = self._items.get(key)
        self._items[key] = item
        for index in self._indexes.values():
            if old is not None:
                index.remove(key, old)
            index.put(key, item)

    def remove(self, key: Key) -> None:
        """Removes the object with that key, if there is one."""
        old = self._items.pop(key, None)
        if old is not None:
            for index in self._indexes.values():
                index.remove(key, old)

    def index(self, name: str, keys: IndexKeys[T]) -> None:
        """Adds an index of all objects by `keys`, a function that returns any number of keys for an object."""
        index = self._indexes[name] = _Index(keys)
        for key, item in self._items.items():
            index.put(key, item)

    def by_index(self, name: str, index_key: Hashable) -> tuple[T, ...]:
        """The objects with `index_key` in the index. Raises KeyError for an unknown index."""
        return tuple(self._indexes[name].get(index_key).values())

    def indexed(self, name: str, index_key: Hashable) -> Mapping[Key, T]:
        """The objects with `index_key` in the index, by namespace and name; a view."""
        return self._indexes[name].get(index_key)
