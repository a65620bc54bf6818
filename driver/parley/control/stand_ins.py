"""Creates and deletes stand-ins, in which standalone drivers record what they allocate for generated claims.

By its deletion a driver learns that it is to deallocate. A pod that ends has its stand-ins deleted here; where it
has not come to that, the garbage collector does so, but of an allocated one only Parley may: the pod may run for
long after its deletion began.
"""

from parley.api.builtin import Pod
from parley.api.models import ResourceClaim
from parley.api.resources import CLAIMS
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import PodClaim
from parley.control.live import live_pod
from parley.control.objects import standin
from parley.control.objects.pod import done
from parley.kube.client import AlreadyExists, Client, Conflict, NotFound


class StandIns:
    """The writes. Each can be repeated, and raises what a client raises."""

    def __init__(self, client: Client, cluster: ClusterCache) -> None:
        self._client = client
        self._cluster = cluster
        self._being_deleted: set[str] = set()
        """UIDs."""

    async def create(self, pod: Pod, claim: PodClaim, begun_by: str = "") -> None:
        """Create the pod's stand-in for a generated claim. The driver `begun_by` is to allocate it at once: its
        finalizer saves it a write."""
        assert claim.asked is not None
        body = standin.stand_in(pod, claim.entry, claim.name, claim.asked, begun_by)
        try:
            await self._client.create(CLAIMS, body, pod.metadata.namespace)
        except AlreadyExists:
            pass  # not in the cache yet; its arrival calls again

    async def delete(self, stand_in: ResourceClaim) -> None:
        """Delete it, whatever changed in it, unless somebody is about it: whose attempt fails tries again."""
        meta = stand_in.metadata
        if meta.uid in self._being_deleted:
            return
        self._being_deleted.add(meta.uid)
        try:
            await self._client.delete(CLAIMS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            pass  # deleted meanwhile, which is as good
        except Conflict:
            if await self._is_there(stand_in):
                raise
        finally:
            self._being_deleted.discard(meta.uid)

    async def _is_there(self, stand_in: ResourceClaim) -> bool:
        """Not if another one has its name."""
        try:
            live = await self._client.get(CLAIMS, stand_in.metadata.name, stand_in.metadata.namespace)
        except NotFound:
            return False
        return live.metadata.uid == stand_in.metadata.uid

    async def delete_left_behind(self, stand_in: ResourceClaim) -> None:
        """Delete it if its pod has ended or is gone, which the cache may have to see."""
        pod = standin.owner(stand_in)
        known = self._cluster.that_pod(pod) if pod is not None else None
        ended = known is not None and done(known)
        if pod is None or ended or await live_pod(self._client, pod) is None:
            await self.delete(stand_in)

    async def delete_unused(self, stand_in: ResourceClaim) -> bool:
        """Delete it, so that no standalone driver records anything in it any more, unless that was done.

        Returns whether it was done now. Raises Conflict if the stand-in is not as given any more.
        """
        meta = stand_in.metadata
        if meta.deletion_timestamp or self._cluster.own_writes.unseen(meta):
            return False
        try:
            version = meta.resource_version
            await self._client.delete(CLAIMS, meta.name, meta.namespace, uid=meta.uid, resource_version=version)
        except NotFound:
            pass  # deleted meanwhile, which is as good
        self._cluster.own_writes.found_gone(meta)
        return True
