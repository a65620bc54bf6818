"""Asks nodes for receipts: the claims of a pod that was deleted by force may still be prepared there.

A kubelet unprepares a pod's claims before it reports the pod's end. So claims may stay prepared only if a bound
pod's object was deleted before that, or a built-in claim was deleted while its pod ran, and only then anything is
written here. In this order; each step begins with what it finds, so that a new leader may repeat all of them:

1. A ClaimRelease is created for each node that may have the claim prepared: a restarted controller will know.
2. When no pod uses the claim any more, its built-in claim loses allocation and reservations, by a write after
   which no earlier one of ours can arrive (`Records.clear_mirror`). No pod may use the claim from then on.
3. `status.allocationCleared` of the ClaimReleases is set: the nodes, all at once, may answer.
4. Each node's plugin deletes its ClaimRelease when it has nothing of that claim prepared and no call for it is
   under way. When the last is gone, the claim is free.

A receipt is final, because a plugin prepares only what the live claim shows as allocated. After step 2 that is
nothing: a call that began before is still under way, or has left something prepared. Parley allocates the claim
again only after step 4. Before step 3 no plugin answers, and none may (the policy `node-receipts`): so there is no
receipt for a claim that other pods still use, and that the node may prepare again.

The same is done at the end of a named claim whose driver leaves data on nodes (`Driver.leaves_data`): the plugins
of the nodes where it could be used remove that before they answer, because `spec.removeData` says so.

A node that is gone, or marked as out of service, owes nothing: the controller deletes its ClaimRelease itself. The
data on it is recorded by `leftovers`. When all nodes have answered, `deallocation` frees the claim; standalone
drivers decide by themselves when they allocate something again.
"""

from collections.abc import Iterable

import structlog

from parley.api.builtin import BuiltinClaim, Node
from parley.api.models import ClaimRelease, ResourceClaim
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIM_RELEASES, NODES
from parley.control.holding import Holding, PreparedOn, Written
from parley.control.live import live_pod
from parley.control.objects.mirror import owner_pod
from parley.control.objects.pod import is_terminal, reference
from parley.control.release.leftovers import LostNodesData, delete_release, set_allocation_cleared
from parley.control.release.receipts import is_of, is_owed, of_lost_nodes, owed, prepared_by, record, record_name
from parley.control.release.unused_claims import UnusedClaimDeadlines
from parley.control.state import State
from parley.kube.client import AlreadyExists, Client, Conflict, NotFound
from parley.kube.queue import WorkQueue

UNSEEN_SECONDS = 5.0
"""Seconds after a write until the holding is reconciled even without an event: between two lists of the informer a
ClaimRelease may have been created and deleted."""

log = structlog.get_logger(__name__)


def out_of_service(node: Node | None) -> bool:
    """Whether nothing can be prepared on the node any more: it is tainted so, or does not exist (None)."""
    return node is None or any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.spec.taints)


def _may_be_prepared(holding: Holding) -> bool:
    """Whether the API shows the holding to nodes, or did until somebody cleared it while it had users."""
    return holding.written is not Written.NO or (holding.used and bool(holding.pods))


def _has_data(holding: Holding) -> bool:
    """Whether nodes may have data of the holding that is not removed by the kubelet's calls."""
    return holding.named and holding.used and holding.node_part and not holding.standalone


def _is_late(release: ClaimRelease, holding: Holding) -> bool:
    """Whether the ClaimRelease asks to remove data for another end than the one that was decided on for the
    holding: of an earlier allocation, or of this one by an earlier leader."""
    return release.spec.remove_data and not (holding.removing and is_of(release, holding))


class Releases:
    """Creates, updates and deletes the ClaimReleases of holdings. `queue` takes the UIDs of holdings to be
    reconciled. Callers that pass a holding have its lock."""

    def __init__(
        self,
        client: Client,
        state: State,
        queue: WorkQueue[str],
        leftovers: LostNodesData,
        unused_deadlines: UnusedClaimDeadlines,
    ) -> None:
        self._client = client
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._queue = queue
        self._leftovers = leftovers
        self._unused_deadlines = unused_deadlines
        self._retracted: set[str] = set()
        """UIDs of ClaimReleases that are deleted because they do not apply, or their node is lost, until the cache
        shows that they are gone: that is no answer."""

    async def owe(self, holding: Holding, nodes: Iterable[str]) -> None:
        """Note that these nodes owe receipts: a user is gone, and no kubelet has reported its end."""
        await self._owe(holding, nodes, holding.claim_uids)

    async def _owe(self, holding: Holding, nodes: Iterable[str], uids: Iterable[str]) -> None:
        if holding.standalone or not holding.node_part or not _may_be_prepared(holding):
            return
        owing = [node for node in nodes if not await self._is_gone(node)]
        holding.owed |= {PreparedOn(uid, node) for uid in uids for node in owing}

    async def owe_deleted(self, holding: Holding) -> None:
        """Note that nodes owe receipts for built-in claims that somebody deleted while pods run with them, or
        cleared after their Parley claim was removed by force. No other object shows that these are prepared: a new
        leader would allocate them to others, before they are recreated."""
        gone = [uid for uid, name in holding.shown_by.items() if not self._is_shown_by(holding, name, uid)]
        for user in list(holding.pods.values()) if gone else ():
            pod = await live_pod(self._client, user)
            if pod is not None and pod.spec.node_name and not is_terminal(pod):
                await self._owe(holding, [pod.spec.node_name], gone)

    def _is_shown_by(self, holding: Holding, name: str, uid: str) -> bool:
        """Whether the built-in claim shows the holding, or will when its pods are reconciled: somebody cleared it,
        and it is not being deleted: then it could not be reserved again."""
        mirror = self._cluster.mirror((holding.namespace, name))
        if mirror is None or mirror.metadata.uid != uid:
            return False
        if mirror.status.allocation is not None:
            return True
        if mirror.metadata.deletion_timestamp:
            return False
        claim = self._cluster.claim_with_uid((holding.namespace, holding.claim), holding.uid)
        return claim is not None or owner_pod(mirror) is not None

    def mirror_lost(self, mirror: BuiltinClaim) -> None:
        """Handle the event that a built-in claim is gone, or does not show any more that it is allocated: requeue
        its holding, in case pods run with it."""
        for holding in self._ledger.all_of_claim(mirror.metadata.namespace, mirror.metadata.name):
            if holding.joinable and mirror.metadata.uid in holding.shown_by:
                self._queue.add(holding.uid)

    def claim_gone(self, claim: ResourceClaim) -> None:
        """Handle the event that a Parley claim is gone: requeue its holding, in case pods run with it."""
        holding = self._ledger.get(claim.metadata.uid)
        if holding is not None and holding.joinable:
            self._queue.add(holding.uid)

    def owes_removal(self, holding: Holding) -> bool:
        """Whether nodes may have data of the holding and were not asked to remove it yet. Data of a generated
        claim is removed without a request, when the claim is unprepared."""
        return _has_data(holding) and not holding.removing and not all(map(self._lost, holding.nodes or ()))

    async def record_lost_nodes(self, holding: Holding) -> None:
        """Record the data that the ending holding has on lost nodes: it is removed when they are back."""
        for node in holding.nodes or () if _has_data(holding) else ():
            if self._lost(node):
                await self._leftovers.record(holding, node)

    def _lost(self, node: str) -> bool:
        return out_of_service(self._cluster.node(node))

    async def _is_gone(self, node: str) -> bool:
        """Whether the node is lost, also as the API server has it: it may have been created again since, or lost
        its taint, and its kubelet may have prepared claims again."""
        if not self._lost(node):
            return False
        try:
            live: Node = await self._client.get(NODES, node)
        except NotFound:
            return True
        return out_of_service(live)

    async def create_missing(self, holding: Holding) -> None:
        """Create the ClaimReleases that are missing, and delete those that do not apply, and those of lost nodes,
        which need not answer. Data that these had to remove is recorded."""
        await self._retract_removals(holding)
        for prepared in sorted(holding.owed):
            if not await self._waived(holding, prepared):
                await self._create(holding, prepared)

    async def _create(self, holding: Holding, prepared: PreparedOn) -> None:
        if self._cached(holding, prepared) is not None:
            return
        self._queue.add_after(holding.uid, UNSEEN_SECONDS)
        try:
            await self._client.create(CLAIM_RELEASES, record(holding, prepared))
        except AlreadyExists:
            return  # the cache does not show it yet; its event requeues the holding
        name = holding.path
        log.info("waits for a receipt", claim=name, driver=holding.driver, node=prepared.node)

    async def request_receipts(self, holding: Holding) -> None:
        """Let the nodes answer from now on: no pod uses the holding, or ever will."""
        for release in [self._cached(holding, prepared) for prepared in sorted(holding.owed)]:
            if release is not None and not release.status.allocation_cleared:
                self._queue.add_after(holding.uid, UNSEEN_SECONDS)
                await set_allocation_cleared(self._client, release)

    def requeue_if_cached(self, holding: Holding) -> None:
        """Requeue the holding if all its ClaimReleases are in the cache; otherwise the event of a new one does."""
        if all(self._cached(holding, prepared) is not None for prepared in holding.owed):
            self._queue.add(holding.uid)

    def _cached(self, holding: Holding, prepared: PreparedOn) -> ClaimRelease | None:
        release = self._cluster.release(record_name(prepared, removing=holding.removing))
        if release is None or release.metadata.uid in self._retracted or _is_late(release, holding):
            return None
        return release

    async def _waived(self, holding: Holding, prepared: PreparedOn) -> bool:
        """Whether the node need not answer. Its ClaimRelease is deleted then, and nothing is owed any more as soon
        as the cache does not show it: the node may be back before a late deletion arrives. Data that the node was
        to remove is recorded first: it may be back before the holding ends."""
        cached = self._cached(holding, prepared)
        if not await self._is_gone(prepared.node):
            return False
        if holding.removing:
            await self._leftovers.record(holding, prepared.node)
        if (release := cached or await self._live(holding, prepared)) is not None:
            self._retracted.add(release.metadata.uid)
            await self._waive(release)
        if cached is None:
            holding.owed.discard(prepared)
        return True

    async def _live(self, holding: Holding, prepared: PreparedOn) -> ClaimRelease | None:
        try:
            return await self._client.get(CLAIM_RELEASES, record_name(prepared, removing=holding.removing))
        except NotFound:
            return None

    async def follow_lost_nodes(self, uid: str) -> None:
        """Reconcile what lost nodes have of the holding with this UID: their data, and what they owe for a driver
        that does not run here any more, whose holdings are not in memory."""
        await self._leftovers.sync(uid)
        for release in owed(self._cluster.releases_of(uid)):
            if release.spec.driver_name not in self._drivers and self._lost(release.spec.node_name):
                await self._waive(release)

    def holding_ended(self, uid: str) -> None:
        """Requeue the ClaimReleases of a holding that has ended: nodes may remove its data, and answer."""
        self._leftovers.holding_ended(uid)
        if any(owed(self._cluster.releases_of(uid))):
            self._queue.add(uid)

    def node_back(self, node: str) -> None:
        """Handle the event that the node is in service: claims with data to be removed there may be in use, and it
        may owe receipts for built-in claims that somebody deleted."""
        for release in of_lost_nodes(self._cluster.releases_on(node)):
            self._queue.add(release.spec.holding_uid)
        for pod in self._cluster.pods_on(node):
            for holding in self._ledger.of_pod(reference(pod)):
                self._queue.add(holding.uid)

    async def retract(self, holding: Holding) -> None:
        """Delete ClaimReleases that do not apply while pods may use the holding: those for lost nodes that are in
        service again, and those for an earlier allocation of the claim that came late."""
        await self._leftovers.retract(holding, self._lost)
        await self._retract_removals(holding)
        for release in owed(self._cluster.releases_of(holding.uid)):
            late = not release.spec.remove_data and prepared_by(release) not in holding.owed
            if late and not holding.standalone:
                await self._waive(release)

    async def _retract_removals(self, holding: Holding) -> None:
        """Delete requests to remove data that were not decided on for the end of this holding, until the cache
        shows that they are gone. What their nodes owe for other reasons they still owe."""
        late = [
            release
            for release in owed(self._cluster.releases_of(holding.uid))
            if release.metadata.uid in self._retracted or _is_late(release, holding)
        ]
        self._retracted.update(release.metadata.uid for release in late)  # the answer to a deletion may be lost
        for release in late:
            self._queue.add_after(holding.uid, UNSEEN_SECONDS)
            try:
                await self._waive(release)
            except Conflict:
                pass  # another has the name, and the cache does not show it yet

    async def waive_needless(self, uid: str) -> None:
        """Delete the ClaimReleases of a UID that has no holding any more: no node needs to answer. If the driver
        does not run here any more, receipts are requested instead, as soon as the claim is not allocated any
        more."""
        for release in owed(self._cluster.releases_of(uid)):
            if release.spec.driver_name not in self._drivers:
                await self._request_of_former(release)
            elif self._kept_by(release) is None:
                await self._waive(release)

    async def _request_of_former(self, release: ClaimRelease) -> None:
        claim = release.spec.claim
        mirror = self._cluster.mirror((claim.namespace, claim.name))
        if mirror is not None and mirror.metadata.uid == claim.uid:
            if self._cluster.own_writes.is_stale(mirror.metadata):
                self._queue.add_after(release.spec.holding_uid, UNSEEN_SECONDS)
                return
            if mirror.status.allocation is not None:
                return
        if not release.status.allocation_cleared:
            await set_allocation_cleared(self._client, release)

    async def _waive(self, release: ClaimRelease) -> None:
        """Delete a ClaimRelease that the node need not answer."""
        log.info("no receipt is needed", release=release.metadata.name, node=release.spec.node_name)
        await delete_release(self._client, release)

    def changed(self, old: ClaimRelease | None, new: ClaimRelease | None) -> None:
        """Handle the informer's event: nodes owe the receipts for which there are ClaimReleases. Needs no lock."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            retracted = old.metadata.uid in self._retracted
            self._retracted.discard(old.metadata.uid)
            self._leftovers.release_gone(old)
            holding = self._kept_by(old)
            # One created late, for what was owed before, does not confirm that the data is removed, nor does the
            # deletion of a late request to remove data confirm anything.
            answers = holding is not None and old.spec.remove_data == holding.removing and not retracted
            if holding is not None and answers and not _is_late(old, holding):
                holding.owed.discard(prepared_by(old))
                self._unused_deadlines.renew(holding)  # until now its containers may have run
            self._queue.add(holding.uid if holding is not None else old.spec.holding_uid)
        if new is not None and new.metadata.uid not in self._retracted:
            holding = self._kept_by(new)
            if holding is not None and not holding.standalone and not _is_late(new, holding):
                holding.owed.add(prepared_by(new))
            self._queue.add(holding.uid if holding is not None else new.spec.holding_uid)

    def _kept_by(self, release: ClaimRelease) -> Holding | None:
        """The holding that is not free before the ClaimRelease is gone, if there is one. A leader that started
        after the claim of a running pod was recreated has it by the new claim's UID."""
        if not is_owed(release):
            return None
        holding = self._ledger.get(release.spec.holding_uid)
        if holding is not None or release.spec.running is None:
            return holding
        return next((other for other in self._ledger if prepared_by(release) in other.owed), None)

    def node_lost(self, node: str) -> None:
        """Handle the event that the node is lost, with all that is prepared: requeue the holdings that wait for
        it."""
        self._leftovers.node_lost(node)
        for release in self._cluster.releases_on(node):
            self._queue.add(release.spec.holding_uid)
        for holding in self._ledger:
            if node in holding.owing_nodes:
                self._queue.add(holding.uid)
