"""Data that claims leave on nodes that are lost when they end: recorded, and removed when such a node is back.

Nothing waits for it. So it is not owed (`Releases`): the claim ends, or is allocated anew elsewhere, at once.
Before its record loses the allocation, there is a ClaimRelease with `spec.nodeLost` for each lost node. When the
claim is not allocated any more as it was, `status.allocationCleared` is set, and from then on the node's plugin
removes the data, whenever it comes to that, by the handle in the ClaimRelease: a later allocation has another. If
the claim's end failed, and its node is back before it is tried again, the ClaimRelease goes.

The ClaimRelease of a node that does not exist goes after a day: a node that was deleted mostly never comes back.
Another leader does not know when it was deleted, and begins anew.
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
from parley.control.release.receipts import left_behind, of_lost_nodes
from parley.kube.client import AlreadyExists, Client, NotFound
from parley.kube.clock import Clock, moment
from parley.kube.queue import WorkQueue

FORGOTTEN: Final = 86_400.0
"""Seconds after which the ClaimRelease of a node that does not exist is deleted."""

log = structlog.get_logger(__name__)


class LostNodesData:
    """The ClaimReleases for lost nodes. `queue` has the UIDs of holdings that are to be looked at again."""

    def __init__(
        self, client: Client, cluster: ClusterCache, ledger: Ledger, queue: WorkQueue[str], clock: Clock
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._ledger = ledger
        self._queue = queue
        self._clock = clock
        self._lost: dict[str, datetime] = {}
        """When nodes that have such data were last seen to be lost, by name, or first found missing."""

    def node_lost(self, node: str) -> None:
        """The node is out of service, or gone altogether: then its time begins."""
        if any(of_lost_nodes(self._cluster.releases_on(node))):
            self._lost[node] = self._clock()

    async def record(self, holding: Holding, node: str) -> None:
        """The holding is about to end, and the node is lost. Safe to repeat."""
        try:
            await self._client.create(CLAIM_RELEASES, left_behind(holding, node))
        except AlreadyExists:
            return
        log.info("left behind on a lost node", claim=holding.path, driver=holding.driver, node=node)

    def ended(self, uid: str) -> None:
        """The holding is gone: its nodes may remove the data from now on."""
        if any(of_lost_nodes(self._cluster.releases_of(uid))):
            self._queue.add(uid)

    async def retract(self, holding: Holding, is_lost: Callable[[str], bool]) -> None:
        """The holding's end failed, and has not begun anew: its data on nodes that are back stays. Whoever calls
        has its lock."""
        for release in of_lost_nodes(self._cluster.releases_of(holding.uid)):
            back = not is_lost(release.spec.node_name)
            if back and not release.status.allocation_cleared and _is_of(release, holding):
                log.info("the node is back in time", claim=holding.path, node=release.spec.node_name)
                await delete_release(self._client, release)

    async def follow(self, uid: str) -> None:
        """See what is to be done about what was left behind by that UID."""
        for release in of_lost_nodes(self._cluster.releases_of(uid)):
            await self._follow(release)

    async def _follow(self, release: ClaimRelease) -> None:
        if self._cluster.node(release.spec.node_name) is None:
            left = self._seconds_left(release)
            if left <= 0:
                await self._forget(release)
                return
            self._queue.add_after(release.spec.holding_uid, left)
        holding = self._ledger.get(release.spec.holding_uid)
        if not release.status.allocation_cleared and (holding is None or not _is_of(release, holding)):
            await set_allocation_cleared(self._client, release)

    def _seconds_left(self, release: ClaimRelease) -> float:
        now = self._clock()
        made = moment(release.metadata.creation_timestamp) or now
        since = max(made, self._lost.setdefault(release.spec.node_name, now))
        return FORGOTTEN - (now - since).total_seconds()

    async def _forget(self, release: ClaimRelease) -> None:
        log.info("the node never came back", release=release.metadata.name, node=release.spec.node_name)
        await delete_release(self._client, release)


async def set_allocation_cleared(client: Client, release: ClaimRelease) -> None:
    """Nothing is allocated any more as it was: from now on the node may answer."""
    meta = release.metadata
    body = {"metadata": {"uid": meta.uid}, "status": {"allocationCleared": True}}
    try:
        await client.patch(CLAIM_RELEASES, meta.name, body)
    except NotFound:
        pass  # somebody deleted it: that comes as a change


async def delete_release(client: Client, release: ClaimRelease) -> None:
    """Nobody needs the node's answer any more; that the record is gone comes as a change."""
    try:
        await client.delete(CLAIM_RELEASES, release.metadata.name, uid=release.metadata.uid)
    except NotFound:
        pass  # the node answered after all


def _is_of(release: ClaimRelease, holding: Holding) -> bool:
    """Whether the holding still is what was to end there: an attempt to end it failed."""
    handles = release.spec.allocation.handles
    data = (handles[0].data if handles else None) or {}
    return release.spec.node_name in (holding.nodes or ()) and data == (holding.allocation.data or {})
