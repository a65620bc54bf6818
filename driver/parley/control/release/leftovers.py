"""Data that claims leave behind on lost nodes: recorded in ClaimReleases, and removed when the node is back.

Nothing waits for the removal. So it is not owed (`Releases`): the claim ends, or is allocated elsewhere, at once.
Before its record loses the allocation, a ClaimRelease with `spec.nodeLost` is created for each lost node. When
that allocation has ended, `status.allocationCleared` is set, and from then on the node's plugin may remove the
data, identified by the handle in the ClaimRelease: a later allocation has another handle. If ending the claim
failed, and its node is back before the next attempt, the ClaimRelease is deleted.

The ClaimRelease of a node that does not exist is deleted after a day: a deleted node rarely comes back. A new
leader does not know when the node was deleted, and begins the day again.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from parley.api.models import ClaimRelease
from parley.api.resources import CLAIM_RELEASES
from parley.control.caches.cluster import ClusterCache
from parley.control.holding import Holding
from parley.control.ledger import Ledger
from parley.control.release.receipts import is_of, lost_node_record, of_lost_nodes
from parley.kube.client import AlreadyExists, Client, NotFound
from parley.kube.clock import Clock, moment
from parley.kube.queue import WorkQueue

FORGET_AFTER_SECONDS: Final = 86_400.0
"""Seconds after which the ClaimRelease of a node that does not exist is deleted."""

log = structlog.get_logger(__name__)


class LostNodesData:
    """Creates and deletes the ClaimReleases for lost nodes. `queue` takes UIDs of holdings to be reconciled."""

    def __init__(
        self, client: Client, cluster: ClusterCache, ledger: Ledger, queue: WorkQueue[str], clock: Clock
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._ledger = ledger
        self._queue = queue
        self._clock = clock
        self._lost: dict[str, datetime] = {}
        """By name of a node with such data: when it was last seen to get lost, or first found missing."""
        self._retracted: dict[str, ClaimRelease] = {}
        """Those that are deleted because their nodes are back, by name, until the cache shows that they are gone:
        the answer to a deletion may be lost."""

    def node_lost(self, node: str) -> None:
        """Handle the event that the node is out of service or gone: its day begins."""
        if any(of_lost_nodes(self._cluster.releases_on(node))):
            self._lost[node] = self._clock()

    async def record(self, holding: Holding, node: str) -> None:
        """Record that the holding, which is about to end, has data on the lost node. Safe to repeat. If an earlier
        record may still be deleted, because the node was back meanwhile, another one takes its place."""
        name, body = lost_node_record(holding, node)
        if (retracted := self._retracted.get(name)) is not None:
            await delete_release(self._client, retracted)
            self._retracted.pop(name, None)
        try:
            await self._client.create(CLAIM_RELEASES, body)
        except AlreadyExists:
            return
        log.info("left behind on a lost node", claim=holding.path, driver=holding.driver, node=node)

    def release_gone(self, release: ClaimRelease) -> None:
        """Handle the event that the ClaimRelease is gone."""
        retracted = self._retracted.get(release.metadata.name)
        if retracted is not None and retracted.metadata.uid == release.metadata.uid:
            del self._retracted[release.metadata.name]
        if not any(of_lost_nodes(self._cluster.releases_on(release.spec.node_name))):
            self._lost.pop(release.spec.node_name, None)

    def holding_ended(self, uid: str) -> None:
        """Requeue the holding's ClaimReleases for lost nodes, now that it has ended: the data may be removed."""
        if any(of_lost_nodes(self._cluster.releases_of(uid))):
            self._queue.add(uid)

    async def retract(self, holding: Holding, is_lost: Callable[[str], bool]) -> None:
        """Delete the ClaimReleases of a holding whose end failed, for nodes that are back: the data there stays.
        The caller has the holding's lock."""
        for release in of_lost_nodes(self._cluster.releases_of(holding.uid)):
            is_back = not is_lost(release.spec.node_name)
            if is_back and not release.status.allocation_cleared and is_of(release, holding):
                log.info("the node is back in time", claim=holding.path, node=release.spec.node_name)
                self._retracted[release.metadata.name] = release
                await delete_release(self._client, release)

    async def sync(self, uid: str) -> None:
        """Reconcile the ClaimReleases for lost nodes of the holding with this UID."""
        for release in of_lost_nodes(self._cluster.releases_of(uid)):
            await self._sync(release)

    async def _sync(self, release: ClaimRelease) -> None:
        if self._cluster.node(release.spec.node_name) is None:
            left = self._seconds_left(release)
            if left <= 0:
                await self._forget(release)
                return
            self._queue.add_after(release.spec.holding_uid, left)
        holding = self._ledger.get(release.spec.holding_uid)
        if not release.status.allocation_cleared and (holding is None or not is_of(release, holding)):
            await set_allocation_cleared(self._client, release)

    def _seconds_left(self, release: ClaimRelease) -> float:
        now = self._clock()
        made = moment(release.metadata.creation_timestamp) or now
        since = max(made, self._lost.setdefault(release.spec.node_name, now))
        return FORGET_AFTER_SECONDS - (now - since).total_seconds()

    async def _forget(self, release: ClaimRelease) -> None:
        log.info("the node never came back", release=release.metadata.name, node=release.spec.node_name)
        await delete_release(self._client, release)


async def set_allocation_cleared(client: Client, release: ClaimRelease) -> None:
    """Record that the allocation has ended: from now on the node may answer."""
    meta = release.metadata
    body = {"metadata": {"uid": meta.uid}, "status": {"allocationCleared": True}}
    try:
        await client.patch(CLAIM_RELEASES, meta.name, body)
    except NotFound:
        pass  # somebody deleted it, and the informer will show that


async def delete_release(client: Client, release: ClaimRelease) -> None:
    """Delete a ClaimRelease that the node need not answer any more. The informer will show the deletion."""
    try:
        await client.delete(CLAIM_RELEASES, release.metadata.name, uid=release.metadata.uid)
    except NotFound:
        pass  # the node answered after all
