"""Which claims and templates have had a mirror: none is made again for one that is gone, though its watch is late.

The garbage collector deletes such a mirror at once. Whoever made it again and again would write in a hot loop.
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

    def made(self, item: Mirrored) -> None:
        """A mirror is created for it now."""
        self._made[item.metadata.namespace, item.metadata.name] = item.metadata.uid

    def forget(self, key: Key) -> None:
        """Nothing of that name is there any more."""
        self._made.pop(key, None)

    async def is_gone(self, item: Mirrored) -> bool:
        """Whether the object, whose mirror is missing, is gone by now, or about to go: asked for if it had one
        before."""
        meta = item.metadata
        if self._made.get((meta.namespace, meta.name)) != meta.uid:
            return False
        try:
            live = await self._client.get(self._resource, meta.name, meta.namespace)
        except NotFound:
            return True
        return bool(live.metadata.uid != meta.uid or live.metadata.deletion_timestamp)
