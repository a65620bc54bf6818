"""Which of our own writes of claims a cache has yet to show. Nothing is decided by a mirror that is older.

A watch may be seconds behind. What it shows then was true before we wrote: a claim that was just cleared seems to
be allocated and reserved still, and a pod must not be bound with it.
"""

from typing import Protocol


class Version(Protocol):
    """An object's metadata, as far as it shows how new it is."""

    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class OwnWrites:
    """The resourceVersion of our latest write of each object, by its UID."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def note(self, written: Version) -> None:
        """The object as our write left it."""
        self._versions[written.uid] = max(_number(written), self._versions.get(written.uid, 0))

    def found_gone(self, cached: Version) -> None:
        """A write did not find the object any more: this state of it is older than that."""
        self._versions[cached.uid] = max(_number(cached) + 1, self._versions.get(cached.uid, 0))

    def forget(self, gone: Version) -> None:
        """The object is gone, as the cache shows."""
        self._versions.pop(gone.uid, None)

    def unseen(self, cached: Version) -> bool:
        """Whether this state of the object is older than our latest write."""
        return _number(cached) < self._versions.get(cached.uid, 0)


def _number(meta: Version) -> int:
    return int(meta.resource_version or 0)
