"""Our own writes of claims that the cache has yet to show. Nothing is decided by a mirror older than such a write.

A watch may be seconds behind, and shows the state before our write then: a claim that was just cleared still seems
to be allocated and reserved, and a pod must not be bound with it.
"""

from collections.abc import Callable
from typing import Protocol


class Version(Protocol):
    """The part of an object's metadata that identifies it and its version."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


def _always(_: Version) -> bool:
    return True


class OwnWrites:
    """The resourceVersion of our latest write of each object that the cache has, by its UID.

    `is_cached` returns whether the cache still has an object: the answer to a write may come after the cache has
    shown the object's deletion, and then nothing is remembered.
    """

    def __init__(self, is_cached: Callable[[Version], bool] = _always) -> None:
        self._is_cached = is_cached
        self._versions: dict[str, int] = {}

    def note(self, written: Version) -> None:
        """Note the object's version after our write; the cache may show that later."""
        self._note(written, _number(written))

    def note_not_found(self, cached: Version) -> None:
        """Note that a write did not find the object any more: the cached state is older than that."""
        self._note(cached, _number(cached) + 1)

    def _note(self, meta: Version, version: int) -> None:
        if self._is_cached(meta):
            self._versions[meta.uid] = max(version, self._versions.get(meta.uid, 0))

    def forget(self, gone: Version) -> None:
        """Forget the object: the cache shows that it is gone."""
        self._versions.pop(gone.uid, None)

    def is_stale(self, cached: Version) -> bool:
        """Whether the cached state of the object is older than our latest write of it."""
        return _number(cached) < self._versions.get(cached.uid, 0)


def _number(meta: Version) -> int:
    return int(meta.resource_version or 0)
