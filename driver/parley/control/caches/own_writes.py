"""Which of our own writes of claims a cache has yet to show. Nothing is decided by a mirror that is older.

A watch may be seconds behind. What it shows then was true before we wrote: a claim that was just cleared seems to
be allocated and reserved still, and a pod must not be bound with it.
"""

from collections.abc import Callable
from typing import Protocol


class Version(Protocol):
    """An object's metadata, as far as it shows which object this is and how new."""

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

    `is_cached` tells whether it has an object still: the answer to a write may come after the cache has shown the
    object's end, and then there is nothing to remember.
    """

    def __init__(self, is_cached: Callable[[Version], bool] = _always) -> None:
        self._is_cached = is_cached
        self._versions: dict[str, int] = {}

    def note(self, written: Version) -> None:
        """The object as our write left it; the cache may show that later."""
        self._note(written, _number(written))

    def found_gone(self, cached: Version) -> None:
        """A write did not find the object any more: this state of it is older than that."""
        self._note(cached, _number(cached) + 1)

    def _note(self, meta: Version, version: int) -> None:
        if self._is_cached(meta):
            self._versions[meta.uid] = max(version, self._versions.get(meta.uid, 0))

    def forget(self, gone: Version) -> None:
        """The object is gone, as the cache shows."""
        self._versions.pop(gone.uid, None)

    def unseen(self, cached: Version) -> bool:
        """Whether this state of the object is older than our latest write."""
        return _number(cached) < self._versions.get(cached.uid, 0)


def _number(meta: Version) -> int:
    return int(meta.resource_version or 0)
