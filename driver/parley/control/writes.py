"""Writes of the two objects that show a holding, and how a write of unknown outcome is settled.

Every write names the state of the object that it was decided on (UID and resourceVersion). A write whose answer
was lost may still arrive. A newer write settles it: that changes the resourceVersion, so the older one is refused.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from parley.api.builtin import BuiltinClaim
from parley.api.models import ResourceClaim
from parley.api.names import GROUP
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, Resource
from parley.control.allocation import Busy
from parley.control.caches.cluster import ClusterCache
from parley.control.holding import Holding, Written
from parley.kube.client import Client, NotFound, OutcomeUnknown

T = TypeVar("T", bound=BuiltinClaim | ResourceClaim)


class ObjectWrites(Generic[T]):
    """Writes statuses of objects of one kind, and notes each write for the cache (`OwnWrites`)."""

    def __init__(self, client: Client, cluster: ClusterCache, resource: Resource[T]) -> None:
        self._client = client
        self._cluster = cluster
        self._resource = resource

    async def patch(self, item: T, status: Mapping[str, Any]) -> T:
        """Write the object's status. Returns it as written. Raises Conflict if it has changed, and NotFound."""
        meta = item.metadata
        body = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status}
        try:
            written = await self._client.patch(
                self._resource, meta.name, body, meta.namespace, subresource="status"
            )
        except NotFound:
            self._cluster.own_writes.note_not_found(meta)
            raise
        self._cluster.own_writes.note(written.metadata)
        return written

    async def touch(self, item: T) -> T:
        """Change the object, whatever its state is by now, so that every write decided on an earlier state is
        refused.

        Changes a label: users may fill the annotations, and one more would be refused where an allocation is not.
        """
        meta = item.metadata
        body = {"metadata": {"uid": meta.uid, "labels": {f"{GROUP}/settled": meta.resource_version}}}
        written = await self._client.patch(self._resource, meta.name, body, meta.namespace)
        self._cluster.own_writes.note(written.metadata)
        return written


class MirrorWrites(ObjectWrites[BuiltinClaim]):
    """Writes statuses of mirrors, which scheduler and node plugins read."""

    def __init__(self, client: Client, cluster: ClusterCache) -> None:
        super().__init__(client, cluster, BUILTIN_CLAIMS)

    async def current(self, holding: Holding) -> BuiltinClaim | None:
        """The holding's mirror, no older than our last write, or the one that was recreated for a bound pod."""
        key = (holding.namespace, holding.claim)
        mirror = self._cluster.mirror(key)
        if not holding.named and mirror is None and (recreated := self._recreated(holding)) is not None:
            key, mirror = (recreated.metadata.namespace, recreated.metadata.name), recreated
        behind = mirror is not None and self._cluster.own_writes.is_stale(mirror.metadata)
        return await self._live(*key) if behind or not holding.written.is_settled else mirror

    def _recreated(self, holding: Holding) -> BuiltinClaim | None:
        pods = (self._cluster.pod((user.namespace, user.name)) for user in holding.pods.values())
        user = next((pod for pod in pods if pod is not None and pod.metadata.uid in holding.pods), None)
        return self._cluster.generated.of_entry(user, holding.entry) if user is not None else None

    async def _live(self, namespace: str, name: str) -> BuiltinClaim | None:
        try:
            return await self._client.get(BUILTIN_CLAIMS, name, namespace)
        except NotFound:
            return None

    async def write(self, holding: Holding, mirror: BuiltinClaim, status: Mapping[str, Any]) -> None:
        """Write the status of the holding's mirror. After that no earlier write can arrive any more.

        Raises Busy if an earlier one arrived meanwhile.
        """
        holding.shown_by[mirror.metadata.uid] = mirror.metadata.name
        try:
            written = await self.patch(mirror, status)
            unchanged = written.metadata.resource_version == mirror.metadata.resource_version
            if unchanged and not holding.written.is_settled:
                settled = await self.settle(holding, mirror)  # an earlier write can still arrive
                if settled.status != written.status:
                    raise Busy
        except OutcomeUnknown:
            holding.written = holding.written.outcome_unknown()
            raise
        holding.written = holding.written.settled()

    async def settle(self, holding: Holding, mirror: BuiltinClaim) -> BuiltinClaim:
        """Change the holding's mirror, so that no earlier write can arrive. Returns it as it is by then."""
        written = await self.touch(mirror)
        shown = written.status.allocation is not None
        holding.written = Written.YES if shown else holding.written.settled()
        return written


class ClaimWrites(ObjectWrites[ResourceClaim]):
    """Writes statuses of Parley's own claims, which are the records of named claims."""

    def __init__(self, client: Client, cluster: ClusterCache) -> None:
        super().__init__(client, cluster, CLAIMS)

    def own(self, holding: Holding) -> ResourceClaim | None:
        """The Parley claim of a named holding."""
        return self._cluster.claim_with_uid((holding.namespace, holding.claim), holding.uid)

    async def current(self, holding: Holding) -> ResourceClaim | None:
        """The claim of the holding's name. Read live, which may raise NotFound, if an unanswered write may have
        changed it."""
        if holding.record_written.is_settled:
            return self._cluster.claim((holding.namespace, holding.claim))
        return await self._client.get(CLAIMS, holding.claim, holding.namespace)

    async def patch_record(self, holding: Holding, claim: ResourceClaim, status: Mapping[str, Any]) -> None:
        """Write the status of the claim that records the holding, as `patch` does. An earlier write can still
        arrive if this one changes nothing."""
        try:
            written = await self.patch(claim, status)
        except OutcomeUnknown:
            holding.record_written = holding.record_written.outcome_unknown()
            raise
        if written.metadata.resource_version != claim.metadata.resource_version:
            holding.record_written = holding.record_written.settled()

    async def write(
        self, holding: Holding, status: Mapping[str, Any], decided_on: ResourceClaim | None = None
    ) -> None:
        """Write the status of the claim that records the holding, as it was when that was decided; None is the
        cache's. After that no earlier write of ours can arrive.

        Raises NotFound if the claim of a named holding is gone: another may have its name.

        A write that changes nothing leaves the resourceVersion as it is, so an earlier one could still arrive:
        then an annotation is changed as well. Raises Conflict if an earlier one arrived meanwhile.
        """
        claim = decided_on or self._cluster.claim((holding.namespace, holding.claim))
        if holding.named and (claim is None or claim.metadata.uid != holding.uid):
            raise NotFound(404, "NotFound", f"claim {holding.path} with UID {holding.uid} is gone")
        body: dict[str, Any] = {"status": status}
        if claim is not None:
            body["metadata"] = {"resourceVersion": claim.metadata.resource_version}
        try:
            meta = (await self._patch_object(holding, body, subresource="status")).metadata
            unchanged = claim is not None and claim.metadata.resource_version == meta.resource_version
            if not holding.record_written.is_settled and unchanged:
                settled = {f"{GROUP}/settled": meta.resource_version}
                body = {"metadata": {"resourceVersion": meta.resource_version, "annotations": settled}}
                await self._patch_object(holding, body)
        except OutcomeUnknown:
            holding.record_written = holding.record_written.outcome_unknown()
            raise
        holding.record_written = holding.record_written.settled()

    async def _patch_object(
        self, holding: Holding, body: dict[str, Any], *, subresource: str = ""
    ) -> ResourceClaim:
        written = await self._client.patch(CLAIMS, holding.claim, body, holding.namespace, subresource=subresource)
        self._cluster.own_writes.note(written.metadata)
        return written
