"""Asks nodes for receipts: what a pod that was deleted by force used there may still be prepared.

A kubelet unprepares a pod's claims before it reports the pod's end. So only a pod that was bound and whose
object went before that leaves anything behind, or one whose built-in claim was deleted under it, and only then
anything is written here. In this order; each step looks at what is there, so that whoever leads may repeat all of
it:

1. A ClaimRelease is made for each node that may have the claim prepared. From now on a restarted controller knows.
2. When no pod uses the claim any more, its built-in claim loses allocation and reservations, by a write after
   which no earlier one of ours can arrive (`Records.clear_mirror`). No pod may come to use the claim from then on.
3. `status.allocationCleared` of the ClaimReleases is set: the nodes, all at once, may answer.
4. Each node's plugin deletes its ClaimRelease when it has nothing of that claim prepared and no call for it is
   under way. When the last is gone, the claim is free.

A receipt is final, because a plugin prepares only what the live claim shows as allocated. After step 2 that is
nothing: a call that began before is still under way, or has left something prepared. Parley allocates the claim
again only after step 4. Before step 3 no plugin answers, and none may (the policy `node-receipts`): so nothing is
said of a claim that others still use, and that the node may prepare again.

The same is done at the end of a named claim whose driver leaves data on nodes (`Driver.leaves_data`): the plugins
of the nodes where it could be used remove that before they answer, because `spec.removeData` says so.

A node that is gone, or marked as out of service, owes nothing: the controller deletes its ClaimRelease itself. The
data that it has is for `leftovers` to remember. What is free when all have answered is for `deallocation` to do;
standalone drivers decide for themselves when they hand something on.
"""

from collections.abc import Iterable

import structlog

from parley.api.builtin import BuiltinClaim, Node
from parley.api.models import ClaimRelease
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIM_RELEASES
from parley.control.holding import Holding, PreparedOn, Written
from parley.control.live import live_pod
from parley.control.objects.pod import done
from parley.control.release.keeping import Keeping
from parley.control.release.leftovers import LostNodesData, delete_release, set_allocation_cleared
from parley.control.release.receipts import is_owed, of_lost_nodes, owed, prepared_by, record, record_name
from parley.control.state import State
from parley.kube.client import AlreadyExists, Client, NotFound
from parley.kube.queue import WorkQueue

UNSEEN_SECONDS = 5.0
"""After so long it is seen whether what was written shows: between two lists it may have come and gone."""

log = structlog.get_logger(__name__)


def out_of_service(node: Node | None) -> bool:
    """Whether nothing can be prepared on the node any more; None is a node that does not exist."""
    return node is None or any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.spec.taints)


def _may_be_prepared(holding: Holding) -> bool:
    """Whether the API shows it to nodes, or did until somebody cleared that under its users."""
    return holding.written is not Written.NO or (holding.used and bool(holding.pods))


def _has_data(holding: Holding) -> bool:
    """Whether nodes may have any, and others than the kubelet's calls are to remove it."""
    return holding.named and holding.used and holding.node_part and not holding.standalone


class Releases:
    """The ClaimReleases of holdings, whose UIDs are in `queue` when they are to be looked at again. Whoever calls
    with a holding has its lock."""

    def __init__(
        self, client: Client, state: State, queue: WorkQueue[str], leftovers: LostNodesData, keeping: Keeping
    ) -> None:
        self._client = client
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._queue = queue
        self._leftovers = leftovers
        self._keeping = keeping

    def owe(self, holding: Holding, nodes: Iterable[str]) -> None:
        """A pod that used the holding on one of the nodes is gone, and no kubelet has reported that it ended."""
        self._owe(holding, nodes, holding.claim_uids)

    def _owe(self, holding: Holding, nodes: Iterable[str], uids: Iterable[str]) -> None:
        if holding.standalone or not holding.node_part or not _may_be_prepared(holding):
            return
        holding.owed |= {PreparedOn(uid, node) for uid in uids for node in nodes if not self._lost(node)}

    async def owe_deleted(self, holding: Holding) -> None:
        """Somebody deleted its built-in claim while pods run with it. What these have prepared by that claim is
        known from no other object: a new leader would give it to others before the claim is made again."""
        gone = [uid for uid, name in holding.shown_by.items() if not self._exists(holding.namespace, name, uid)]
        for user in list(holding.pods.values()) if gone else ():
            pod = await live_pod(self._client, user)
            if pod is not None and pod.spec.node_name and not done(pod):
                self._owe(holding, [pod.spec.node_name], gone)

    def _exists(self, namespace: str, name: str, uid: str) -> bool:
        mirror = self._cluster.mirror((namespace, name))
        return mirror is not None and mirror.metadata.uid == uid

    def mirror_gone(self, mirror: BuiltinClaim) -> None:
        """A built-in claim is gone: it is looked whether pods run with it."""
        holding = self._ledger.of_claim(mirror.metadata.namespace, mirror.metadata.name)
        if holding is not None and holding.joinable and mirror.metadata.uid in holding.shown_by:
            self._queue.add(holding.uid)

    def owes_removal(self, holding: Holding) -> bool:
        """Whether nodes may have data of the holding, and were not asked yet to remove it. They remove that of a
        generated claim without being asked, when they unprepare it."""
        return _has_data(holding) and not holding.removing and not all(map(self._lost, holding.nodes or ()))

    async def record_lost_nodes(self, holding: Holding) -> None:
        """The holding ends: what its lost nodes have of it they remove when they are back."""
        for node in holding.nodes or () if _has_data(holding) else ():
            if self._lost(node):
                await self._leftovers.record(holding, node)

    def owe_removal(self, holding: Holding) -> None:
        """The holding ends: its nodes are to remove their data of it."""
        holding.removing = True
        uid = next(iter(holding.claim_uids), holding.uid)
        holding.owed |= {PreparedOn(uid, node) for node in holding.nodes or () if not self._lost(node)}

    def _lost(self, node: str) -> bool:
        return out_of_service(self._cluster.node(node))

    async def note(self, holding: Holding) -> None:
        """Each node that owes something has its record, or need not answer."""
        for one in sorted(holding.owed):
            if not await self._waived(holding, one):
                await self._note(holding, one)

    async def _note(self, holding: Holding, prepared: PreparedOn) -> None:
        if self._known(prepared) is not None:
            return
        self._queue.add_after(holding.uid, UNSEEN_SECONDS)
        try:
            await self._client.create(CLAIM_RELEASES, record(holding, prepared))
        except AlreadyExists:
            return  # not in the cache yet; its arrival calls again
        name = holding.path
        log.info("waits for a receipt", claim=name, driver=holding.driver, node=prepared.node)

    async def request_receipts(self, holding: Holding) -> None:
        """Nobody uses the holding, nor will: its nodes may answer from now on."""
        for release in map(self._known, sorted(holding.owed)):
            if release is not None and not release.status.allocation_cleared:
                self._queue.add_after(holding.uid, UNSEEN_SECONDS)
                await set_allocation_cleared(self._client, release)

    def look_again(self, holding: Holding) -> None:
        """Go on with records that were there before; those that are new come as a change."""
        if all(self._known(one) is not None for one in holding.owed):
            self._queue.add(holding.uid)

    def _known(self, prepared: PreparedOn) -> ClaimRelease | None:
        return self._cluster.release(record_name(prepared))

    async def _waived(self, holding: Holding, prepared: PreparedOn) -> bool:
        """Whether the node need not answer; its record goes then, and what is owed with the record. Of one that
        the cache has not shown it may never tell that it is gone."""
        if not self._lost(prepared.node):
            return False
        known = self._known(prepared)
        if (release := known or await self._live(prepared)) is not None:
            await self._waive(release)
        if known is None:
            holding.owed.discard(prepared)
        return True

    async def _live(self, prepared: PreparedOn) -> ClaimRelease | None:
        try:
            return await self._client.get(CLAIM_RELEASES, record_name(prepared))
        except NotFound:
            return None

    async def follow_lost_nodes(self, uid: str) -> None:
        """See what is to be done about lost nodes, by that UID: about their data, and about what they owe for a
        driver that runs here no more, of which nothing is in memory."""
        await self._leftovers.follow(uid)
        for release in owed(self._cluster.releases_of(uid)):
            if release.spec.driver_name not in self._drivers and self._lost(release.spec.node_name):
                await self._waive(release)

    def ended(self, uid: str) -> None:
        """The holding is gone: what it left on lost nodes may be removed, and what nodes owe may be requested."""
        self._leftovers.ended(uid)
        if any(owed(self._cluster.releases_of(uid))):
            self._queue.add(uid)

    def node_back(self, node: str) -> None:
        """The node is in service: what was to be left behind there may be in use."""
        for release in of_lost_nodes(self._cluster.releases_on(node)):
            self._queue.add(release.spec.holding_uid)

    async def retract(self, holding: Holding) -> None:
        """The holding is in use, or may come to be: its data stays, but on lost nodes. A request to remove it was
        decided on for an earlier allocation, and came late."""
        await self._leftovers.retract(holding, self._lost)
        for release in owed(self._cluster.releases_of(holding.uid)):
            if release.spec.remove_data:
                await self._waive(release)

    async def waive_needless(self, uid: str) -> None:
        """No node needs to answer for what is not held any more by that UID. If its driver runs here no more, they
        are asked as soon as the claim is not allocated any more."""
        for release in owed(self._cluster.releases_of(uid)):
            if release.spec.driver_name not in self._drivers:
                await self._request_of_former(release)
            elif self._kept_by(release) is None:
                await self._waive(release)

    async def _request_of_former(self, release: ClaimRelease) -> None:
        claim = release.spec.claim
        mirror = self._cluster.mirror((claim.namespace, claim.name))
        if mirror is not None and mirror.metadata.uid == claim.uid:
            if self._cluster.own_writes.unseen(mirror.metadata):
                self._queue.add_after(release.spec.holding_uid, UNSEEN_SECONDS)
                return
            if mirror.status.allocation is not None:
                return
        if not release.status.allocation_cleared:
            await set_allocation_cleared(self._client, release)

    async def _waive(self, release: ClaimRelease) -> None:
        """Delete a record that nobody needs to answer."""
        log.info("no receipt is needed", release=release.metadata.name, node=release.spec.node_name)
        await delete_release(self._client, release)

    def changed(self, old: ClaimRelease | None, new: ClaimRelease | None) -> None:
        """What nodes owe is what records there are. Needs no lock: it only notes what has happened."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            holding = self._kept_by(old)
            # One that was made late, for what was owed before, says nothing of the data.
            answers = holding is not None and (old.spec.remove_data or not holding.removing)
            if holding is not None and answers:
                holding.owed.discard(prepared_by(old))
                self._keeping.begin_anew(holding)  # until now its containers may have run
            self._queue.add(holding.uid if holding is not None else old.spec.holding_uid)
        if new is not None:
            holding = self._kept_by(new)
            if holding is not None and not holding.standalone:
                holding.owed.add(prepared_by(new))
            self._queue.add(holding.uid if holding is not None else new.spec.holding_uid)

    def _kept_by(self, release: ClaimRelease) -> Holding | None:
        """The holding that is not free before the release is gone, if there is one. A leader that came after the
        claim of a running pod was made again knows it by the new claim's UID."""
        if not is_owed(release):
            return None
        holding = self._ledger.get(release.spec.holding_uid)
        if holding is not None or release.spec.running is None:
            return holding
        return next((other for other in self._ledger if prepared_by(release) in other.owed), None)

    def node_lost(self, node: str) -> None:
        """Nothing is prepared on the node any more: what waits for it need not."""
        self._leftovers.node_lost(node)
        for release in self._cluster.releases_on(node):
            self._queue.add(release.spec.holding_uid)
        for holding in self._ledger:
            if node in holding.owing_nodes:
                self._queue.add(holding.uid)
