"""An informer's cache: objects of one kind by namespace and name, with indexes; `informer` fills it."""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, ValuesView
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

Key = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""

IndexKeys = Callable[[T], Iterable[Hashable]]
"""The keys under which an index finds an object; none leaves it out."""


class ObjectState(NamedTuple):
    """Which object this is, and in which state."""

    key: Key
    uid: str
    resource_version: str


def identity(item: Any) -> ObjectState:
    """Of a struct, a model or a plain dictionary with `metadata`."""
    if isinstance(item, dict):
        meta = item.get("metadata", {})
        key = (meta.get("namespace", ""), meta.get("name", ""))
        return ObjectState(key, meta.get("uid", ""), meta.get("resourceVersion", ""))
    meta = item.metadata
    return ObjectState((meta.namespace, meta.name), meta.uid, meta.resource_version)


class _Index(Generic[T]):
    def __init__(self, keys: IndexKeys[T]) -> None:
        self._keys = keys
        self._found: dict[Hashable, dict[Key, T]] = {}

    def put(self, key: Key, item: T) -> None:
        for index_key in self._keys(item):
            self._found.setdefault(index_key, {})[key] = item

    def remove(self, key: Key, item: T) -> None:
        for index_key in self._keys(item):
            items = self._found.get(index_key, {})
            items.pop(key, None)
            if not items:
                self._found.pop(index_key, None)

    def get(self, index_key: Hashable) -> Mapping[Key, T]:
        return self._found.get(index_key, {})


class Cache(Generic[T]):
    """The objects, in the order in which their names first came."""

    def __init__(self) -> None:
        self._items: dict[Key, T] = {}
        self._indexes: dict[str, _Index[T]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Key) -> T | None:
        """The object of that key, if there is one."""
        return self._items.get(key)

    def values(self) -> ValuesView[T]:
        """All objects; a view, so copy it before anything awaits."""
        return self._items.values()

    def absent(self, present: Container[Key]) -> list[Key]:
        """The keys held here that are not in `present`."""
        return [key for key in self._items if key not in present]

    def put(self, key: Key, item: T) -> None:
        """Add the object, or put it in the place of the one of that key."""
        old = self._items.get(key)
        self._items[key] = item
        for index in self._indexes.values():
            if old is not None:
                index.remove(key, old)
            index.put(key, item)

    def remove(self, key: Key) -> None:
        """Take the object of that key out, if there is one."""
        old = self._items.pop(key, None)
        if old is not None:
            for index in self._indexes.values():
                index.remove(key, old)

    def index(self, name: str, keys: IndexKeys[T]) -> None:
        """Keep the objects findable by `keys` of them; those that are here already too."""
        index = self._indexes[name] = _Index(keys)
        for key, item in self._items.items():
            index.put(key, item)

    def by_index(self, name: str, index_key: Hashable) -> tuple[T, ...]:
        """The objects found under `index_key`. Raises KeyError for an index that was never made."""
        return tuple(self._indexes[name].get(index_key).values())

    def indexed(self, name: str, index_key: Hashable) -> Mapping[Key, T]:
        """The same, by their keys; a view."""
        return self._indexes[name].get(index_key)
