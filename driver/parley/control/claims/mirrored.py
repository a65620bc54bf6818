"""Which claims and templates have had a mirror, so that none is created again for an object that is gone.

The informer may still show such an object. The garbage collector deletes its mirror at once, so creating it again
would be a hot loop of writes.
"""

from typing import Any

from parley.api.resources import Resource
from parley.control.caches.refusals import Mirrored
from parley.kube.cache import Key
from parley.kube.client import Client, NotFound


class MadeMirrors:
    """Remembers for which objects of a kind a mirror was created."""

    def __init__(self, client: Client, resource: Resource[Any]) -> None:
        self._client = client
        self._resource = resource
        self._made: dict[Key, str] = {}
        """UIDs of the objects, by namespace and name."""

    def note_created(self, item: Mirrored) -> None:
        """Note that a mirror is being created for the object."""
        self._made[item.metadata.namespace, item.metadata.name] = item.metadata.uid

    def forget(self, key: Key) -> None:
        """Forget the object of that name: it is gone."""
        self._made.pop(key, None)

    async def is_gone(self, item: Mirrored) -> bool:
        """Whether an object without a mirror is gone or being deleted. Read from the API server if it had one."""
        meta = item.metadata
        if self._made.get((meta.namespace, meta.name)) != meta.uid:
            return False
        try:
            live = await self._client.get(self._resource, meta.name, meta.namespace)
        except NotFound:
            return True
        return bool(live.metadata.uid != meta.uid or live.metadata.deletion_timestamp)
