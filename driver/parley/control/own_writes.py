"""Which of our own writes of mirrors a cache has yet to show. Nothing is decided by a mirror that is older.

A watch may be seconds behind. What it shows then was true before we wrote: a claim that was just cleared seems to
be allocated and reserved still, and a pod must not be bound with it.
"""

from parley.api.builtin import BuiltinClaim


class OwnWrites:
    """The resourceVersion of our latest write of each mirror, by the mirror's UID."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def note(self, written: BuiltinClaim) -> None:
        """The mirror as our write left it."""
        uid = written.metadata.uid
        self._versions[uid] = max(_version(written), self._versions.get(uid, 0))

    def forget(self, mirror: BuiltinClaim) -> None:
        """The mirror is gone."""
        self._versions.pop(mirror.metadata.uid, None)

    def unseen(self, mirror: BuiltinClaim) -> bool:
        """Whether this state of the mirror is older than our latest write."""
        return _version(mirror) < self._versions.get(mirror.metadata.uid, 0)


def _version(mirror: BuiltinClaim) -> int:
    return int(mirror.metadata.resource_version or 0)
