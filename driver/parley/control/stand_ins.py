"""Creates and deletes stand-ins, in which standalone drivers record their allocations for generated claims.

A stand-in's deletion tells its driver to deallocate. The stand-ins of a pod that ends are deleted here. The
garbage collector deletes those that are left, but not allocated ones, which only Parley may delete: the pod may
run for long after its deletion began.
"""

import asyncio

from parley.api.builtin import Pod
from parley.api.models import ResourceClaim
from parley.api.resources import CLAIMS
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import PodClaim
from parley.control.live import live_pod
from parley.control.objects import standin
from parley.control.objects.pod import is_terminal
from parley.kube.client import AlreadyExists, Client, Conflict, NotFound


class StandIns:
    """Creates and deletes stand-ins. Each call can be repeated, and raises what a client raises."""

    def __init__(self, client: Client, cluster: ClusterCache) -> None:
        self._client = client
        self._cluster = cluster
        self._deletions: dict[str, asyncio.Future[bool]] = {}
        """The deletions under way, by the stand-ins' UIDs. The result is whether it succeeded."""

    async def create(self, pod: Pod, claim: PodClaim, begun_by: str = "") -> None:
        """Create the pod's stand-in for a generated claim. The driver `begun_by`, if given, is to allocate it at
        once: setting its finalizer here saves it a write."""
        assert claim.class_request is not None
        body = standin.stand_in(pod, claim.entry, claim.name, claim.class_request, begun_by)
        try:
            await self._client.create(CLAIMS, body, pod.metadata.namespace)
        except AlreadyExists:
            pass  # not in the cache yet; its event requeues the pod

    async def delete(self, stand_in: ResourceClaim) -> None:
        """Delete the stand-in whatever its state. If a deletion is under way, wait for it, and repeat it if it
        fails: its caller may have no reason to repeat it any more."""
        uid = stand_in.metadata.uid
        while (under_way := self._deletions.get(uid)) is not None:
            if await asyncio.shield(under_way):
                return
        self._deletions[uid] = deletion = asyncio.get_running_loop().create_future()
        deleted = False
        try:
            await self._delete(stand_in)
            deleted = True
        finally:
            del self._deletions[uid]
            deletion.set_result(deleted)

    async def _delete(self, stand_in: ResourceClaim) -> None:
        meta = stand_in.metadata
        try:
            await self._client.delete(CLAIMS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            pass  # deleted meanwhile
        except Conflict:
            if await self._exists(stand_in):
                raise

    async def _exists(self, stand_in: ResourceClaim) -> bool:
        """Whether this very stand-in exists, and not another one of its name."""
        try:
            live = await self._client.get(CLAIMS, stand_in.metadata.name, stand_in.metadata.namespace)
        except NotFound:
            return False
        return live.metadata.uid == stand_in.metadata.uid

    async def delete_left_behind(self, stand_in: ResourceClaim) -> None:
        """Delete the stand-in if its pod is terminal, even if the cache does not show that yet."""
        pod = standin.owner(stand_in)
        known = self._cluster.pod_with_uid(pod) if pod is not None else None
        ended = known is not None and is_terminal(known)
        if pod is None or ended or await live_pod(self._client, pod) is None:
            await self.delete(stand_in)

    async def delete_unused(self, stand_in: ResourceClaim) -> bool:
        """Delete the stand-in, so that no standalone driver can record anything in it any more.

        Returns False if it was deleted before. Raises Conflict if the stand-in has changed since.
        """
        meta = stand_in.metadata
        if meta.deletion_timestamp or self._cluster.own_writes.is_stale(meta):
            return False
        try:
            version = meta.resource_version
            await self._client.delete(CLAIMS, meta.name, meta.namespace, uid=meta.uid, resource_version=version)
        except NotFound:
            pass  # deleted meanwhile
        self._cluster.own_writes.note_not_found(meta)
        return True
