"""Releases pods' claims: they are cleared in the API, then the driver deallocates, then the ledger drops them.

So nothing is allocated for another pod while a record of it may exist. A standalone driver deallocates by itself;
until it has cleared its record, the holding stays in the ledger without users, and no pod may use it. The same
holds for the claims of a pod that was deleted by force, until its node confirms that they are not prepared there
any more. A claim whose class says so is kept for a time without users (`unused_claims`).
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.models import ResourceClaim
from parley.api.names import GENERATED_LABEL
from parley.control.allocation import Busy, Saturated
from parley.control.claims.podclaims import ROOM
from parley.control.holding import Holding, Phase, Written
from parley.control.objects.mirror import owner_pod, owner_pod_uid
from parley.control.objects.pod import is_done, reference
from parley.control.objects.standin import is_stand_in
from parley.control.records import Records
from parley.control.release.deallocation_requests import DeallocationRequests
from parley.control.release.releases import Releases
from parley.control.release.unseen_users import UnseenUsers
from parley.control.release.unused_claims import UnusedClaimDeadlines
from parley.control.restoring import adopt_record
from parley.control.state import State
from parley.control.wakeups import Wakeups
from parley.kube.cache import Key
from parley.kube.queue import Requeue
from parley.negotiation.availability import SelectedNodes
from parley.sdk import PodReference
from parley.sdk.recorded import driver_of_record, held_as_recorded

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReleaseContext:
    """The state of a pod when its use of claims ends.

    `pod_terminal`: Kubernetes deletes the pod's generated claims then, which saves a write. `bound`: the pod was
    bound to a node, or may have been. `prepared_on`: nodes whose kubelet has not reported the pod's end; its
    claims are free when these have unprepared them.
    """

    pod_terminal: bool
    bound: bool
    prepared_on: Sequence[str] = ()


class Deallocator:
    """Ends pods' use of holdings, and the holdings themselves. `releases` asks nodes for confirmation first,
    `close` withdraws what standalone drivers are asked for a pod."""

    def __init__(
        self,
        state: State,
        records: Records,
        unseen_users: UnseenUsers,
        releases: Releases,
        close: Callable[[PodReference], Awaitable[object]],
        wakeups: Wakeups,
        unused_deadlines: UnusedClaimDeadlines,
    ) -> None:
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._records = records
        self._unseen_users = unseen_users
        self.releases = releases
        self._requests = DeallocationRequests(state, records.claims, close, wakeups)
        self._wakeups = wakeups
        self._unused_deadlines = unused_deadlines

    async def release(
        self,
        pod: PodReference,
        holdings: Sequence[Holding],
        context: ReleaseContext,
        cleared: Sequence[Holding] = (),
    ) -> None:
        """End the pod's use of the holdings. Those without other users are freed, or kept for a time.

        `cleared` are those that are released because somebody cleared them in the API. Raises Busy if one of these
        was reserved for the pod again: it may be bound by now.
        """
        for holding in holdings:
            was_cleared = any(holding is other for other in cleared)
            if await self._release(holding, pod, context, cleared=was_cleared):
                self._released(holding)

    def _released(self, holding: Holding) -> None:
        """Wake the pods that wait for the holding, and its claim, after a pod's use of it has ended."""
        if holding.phase is not Phase.RELEASING:
            driver = self._drivers.get(holding.driver)
            held = held_as_recorded(holding.uid, holding.node, holding.allocation)
            by_labels = isinstance(holding.nodes, SelectedNodes)  # its own node may have lost the labels since
            local = driver is not None and driver.is_local(held) and not by_labels
            self._wakeups.wake(("driver", holding.driver), _nodes_of(holding) if local else None)
        if holding.allocation.reserve is not None:
            self._wakeups.wake(ROOM, holding.nodes)
        if holding.named or holding.phase is Phase.ENDING or self._is_of_claim(holding):
            self._wakeups.wake(("claim", holding.namespace, holding.claim))

    def _is_of_claim(self, holding: Holding) -> bool:
        """Whether a holding that is not marked as named, as it was restored from a ClaimRelease or from the mirror
        of a claim that was removed by force, belongs to a named claim, or has a stand-in."""
        key = (holding.namespace, holding.claim)
        claim, mirror = self._cluster.claim(key), self._cluster.mirror(key)
        orphaned = mirror is not None and owner_pod(mirror) is None
        return orphaned or (claim is not None and (claim.metadata.uid == holding.uid or is_stand_in(claim)))

    async def _release(
        self, holding: Holding, pod: PodReference, context: ReleaseContext, *, cleared: bool
    ) -> bool:
        """End the pod's use of the holding. Returns whether the pod used it until now."""
        async with holding.lock:
            if pod.uid not in holding.pods:
                return False
            if cleared and await self._records.is_reserved(holding, pod):
                raise Busy  # it was repaired for another user, and for all its users
            missed = self._unseen_users.nodes_of_missed(holding)
            ends = not self._is_kept(holding) or holding.owed or context.prepared_on or missed
            unseen = await self._unseen_users.nodes_of_unseen(holding) if ends and len(holding.pods) == 1 else ()
            doubtful = {*unseen, *self._unseen_users.join_known(holding), *missed}
            last = len(holding.pods) == 1
            await self.releases.owe(holding, [*context.prepared_on, *(doubtful if last else ())])
            self._unused_deadlines.pod_left(holding, bound=context.bound or bool(doubtful))
            if len(holding.pods) > 1 or (self._is_kept(holding) and not holding.owed):
                await self.releases.create_missing(holding)
                await self._records.unreserve(holding, pod)
                self._ledger.leave(holding, pod)
            elif holding.owed:
                await self._begin_releasing(holding)
                await self._free_if_confirmed(holding)
            else:
                await self._finish(holding, pod_terminal=context.pod_terminal)
            return True

    def _is_current(self, holding: Holding) -> bool:
        """Whether the holding did not end while the caller waited for its lock."""
        return self._ledger.get(holding.uid) is holding

    async def _finish(self, holding: Holding, *, pod_terminal: bool) -> None:
        """End the holding. Pods' data on its nodes is removed first; once that has begun no pod can use it any
        more, even if a later step fails."""
        driver = self._drivers.get(holding.driver)
        leaves_data = driver is not None and driver.leaves_data
        with holding.entering(Phase.UNRESERVING):
            if leaves_data:
                await self.releases.record_lost_nodes(holding)
            if not leaves_data or not self.releases.owes_removal(holding):
                await self._end(holding, pod_terminal=pod_terminal)
                return
            await self._records.clear_mirror(holding)  # until then a scheduler may reserve it for others
            holding.written = Written.NO
        holding.phase = Phase.UNRESERVING
        holding.owe_removal()
        await self._begin_releasing(holding)

    def _is_kept(self, holding: Holding) -> bool:
        """Whether the holding stays allocated without users. If its claim is being deleted, that ends it later."""
        kept = holding.immediate or self._unused_deadlines.seconds_left(holding) > 0
        return kept or bool(self._ledger.used_by(holding))

    async def _begin_releasing(self, holding: Holding) -> None:
        """Enter the phase RELEASING: no pod uses the holding or may begin to, but nodes may have it prepared."""
        with holding.entering(Phase.UNRESERVING):
            await self.releases.create_missing(holding)
            await self._records.clear_mirror(holding)
            holding.written = Written.NO
            self._unused_deadlines.renew(holding)  # until now a scheduler may have reserved it for others, unseen
            await self._records.claims.record_releasing(holding)
        holding.phase, holding.only_data = Phase.RELEASING, holding.removing
        self._ledger.release(holding)
        self.releases.requeue_if_cached(holding)

    async def sync(self, uid: str) -> Requeue | None:
        """Reconcile the holding's ClaimReleases. It is freed when no node may have it prepared any more."""
        await self.releases.follow_lost_nodes(uid)
        while (holding := self._ledger.get(uid)) is not None:
            try:
                if await self._sync(holding):
                    return None
            except Busy:
                return Requeue()
        await self.releases.waive_needless(uid)
        return None

    async def _sync(self, holding: Holding) -> bool:
        """Reconcile once. Returns False if the holding has ended meanwhile."""
        async with holding.lock:
            if not self._is_current(holding):
                return False
            if holding.phase is Phase.ENDING:
                await self._deallocate(holding)
                self._drop(holding)
                self._released(holding)
                return True
            begins = holding.phase is Phase.UNRESERVING and not holding.standalone
            if begins:
                # An earlier leader was interrupted before that, or an attempt failed.
                await self._begin_releasing(holding)
            else:
                if holding.joinable:
                    await self.releases.retract(holding)
                    await self.releases.owe_deleted(holding)
                await self.releases.create_missing(holding)
                if holding.owed and holding.phase is Phase.RELEASING:
                    await self._records.claims.record_releasing(holding)
                    await self.releases.request_receipts(holding)
            freed = await self._free_if_confirmed(holding)
        if begins or freed:
            self._released(holding)
        return True

    async def _free_if_confirmed(self, holding: Holding) -> bool:
        """End or keep the holding if no node owes a receipt for it any more. Returns whether others can use it, or
        the room that it reserved, now."""
        if holding.phase is not Phase.RELEASING or holding.owed:
            return False
        if self._unused_deadlines.seconds_left(holding):
            self._unused_deadlines.renew(holding)  # a receipt may have come while no controller led
        if self._is_kept(holding) and not holding.removing:
            await self._records.claims.keep_without_users(holding)
            holding.phase = Phase.HELD
            return True
        await self._finish(holding, pod_terminal=True)
        return True

    async def release_unused(self, holding: Holding, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """End a holding without users. Raises Busy if a pod has begun to use it, or its end is not wanted any
        more."""
        async with holding.lock:
            unseen = await self._unseen_users.nodes_of_unseen(holding)
            unused = not holding.pods and not self._ledger.used_by(holding)
            if not unused or not holding.joinable or not is_wanted() or not self._is_current(holding):
                raise Busy
            await self.releases.owe(holding, unseen)
            if holding.owed:
                await self._begin_releasing(holding)
                await self._free_if_confirmed(holding)
            else:
                await self._finish(holding, pod_terminal=False)
        self._released(holding)

    async def _end(self, holding: Holding, *, pod_terminal: bool) -> None:
        """Clear the holding in the API, deallocate, then drop it. If clearing fails it stays as it was."""
        with holding.entering(Phase.UNRESERVING):
            if holding.named or not pod_terminal or not self._is_deleted_with_pod(holding):
                await self._records.clear_mirror(holding)
            if holding.standalone:
                deallocated = await self._requests.request(holding, pod_terminal=pod_terminal)
            else:
                await self._deallocate(holding)
                deallocated = True
        if deallocated:
            self._drop(holding)
        else:
            self._ledger.release(holding)

    def _is_deleted_with_pod(self, holding: Holding) -> bool:
        """Whether Kubernetes deletes the generated claim with its pod, and no other pod can use it until then: the
        scheduler reserves it for any pod that names it, unless an admission policy prevents that."""
        key = (holding.namespace, holding.claim)
        mirror = self._cluster.mirror(key)
        if mirror is None or mirror.status.allocation is None:
            return True
        users = {user.uid for user in mirror.status.reserved_for}
        if mirror.metadata.deletion_timestamp and not users:
            return True
        ours = owner_pod_uid(mirror) in holding.pods and users <= holding.pods.keys()
        return ours and all(is_done(pod) for pod in self._cluster.pods_naming(key))

    def _drop(self, holding: Holding) -> None:
        self._ledger.drop(holding)
        self.releases.holding_ended(holding.uid)
        name = holding.path
        log.info("released", claim=name, driver=holding.driver, node=holding.node)
        for used in map(self._ledger.get, holding.uses):
            if used is not None and not used.pods:
                self._wakeups.wake(("claim", used.namespace, used.claim))
        self._adopt_next(holding)

    def _adopt_next(self, ended: Holding) -> None:
        """Adopt the record of another claim that has the name by now. A standalone driver may have allocated it
        unasked, which was not adopted while the ended holding had the name."""
        claim = self._cluster.claim((ended.namespace, ended.claim))
        if claim is None or claim.metadata.uid == ended.uid or driver_of_record(claim) in self._drivers:
            return
        if not self._cluster.own_writes.is_stale(claim.metadata):
            adopt_record(self._state, claim)

    async def _deallocate(self, holding: Holding) -> None:
        """Clear the holding's record, and let its embedded driver deallocate. If the driver fails, it may have
        done so: no pod may use the holding any more, and the driver is asked again after a pause."""
        driver = self._drivers[holding.driver]
        if driver.is_saturated:
            raise Saturated(holding.driver)
        if holding.phase is not Phase.ENDING:
            await self._records.clear_claim(holding)
        try:
            await driver.deallocate(holding.uid)
        except BaseException:
            if holding.phase is not Phase.ENDING:
                holding.phase = Phase.ENDING
                self._ledger.release(holding)
                self.releases.requeue_if_cached(holding)
            raise

    async def ask_again(self, holding: Holding) -> None:
        """Ask the standalone driver again to deallocate the holding, if needed. Raises what a client raises."""
        if not self._requests.is_due_again(holding):
            return
        async with holding.lock:
            if not self._is_current(holding) or holding.pods or not self._requests.is_due_again(holding):
                return
            if not await self._requests.repeat(holding):
                return
            self._drop(holding)
        self._released(holding)

    async def pod_ended(self, pod: PodReference) -> None:
        """Delete the stand-ins of a pod that has ended but whose object stays, so that their drivers
        deallocate."""
        for claim in self._cluster.stand_ins(pod):
            if not claim.metadata.deletion_timestamp:
                await self._records.stand_ins.delete(claim)

    async def delete_replaced_stand_ins(self, pod: Pod) -> None:
        """Delete the former stand-ins of the pod's generated claims that were recreated, and have another stand-in
        now, before anything was allocated: their drivers deallocate what they have allocated since."""
        stand_ins = self._cluster.stand_ins(reference(pod))
        if len(stand_ins) < 2:
            return
        by_entry: defaultdict[str, dict[Key, ResourceClaim]] = defaultdict(dict)
        for claim in stand_ins:
            entry = claim.metadata.labels.get(GENERATED_LABEL, "")
            by_entry[entry][claim.metadata.namespace, claim.metadata.name] = claim
        for entry, found in by_entry.items():
            mirror = self._cluster.generated.of_entry(pod, entry)
            if mirror is None or found.pop((mirror.metadata.namespace, mirror.metadata.name), None) is None:
                continue
            for key, claim in found.items():
                is_held = self._ledger.of_claim(*key) is not None or self._ledger.expected_for(*key) is not None
                if not is_held and not claim.metadata.deletion_timestamp:
                    await self._records.stand_ins.delete(claim)

    def mirror_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        """Handle the informer's event: another client may have changed a built-in claim of ours."""
        if old is not None and new is not None:
            self._unseen_users.mirror_changed(old, new)

    def pod_gone(self, pod: Pod) -> None:
        """Handle the informer's event that the pod is gone."""
        self._unseen_users.pod_gone(pod)

    def record_changed(self, claim: ResourceClaim, *, gone: bool) -> bool:
        """Handle the informer's event that a Parley claim changed: if its standalone driver has deallocated it,
        and no pod uses it, its holding is dropped. Returns whether it was."""
        holding = self._ledger.of_claim(claim.metadata.namespace, claim.metadata.name)
        if holding is None or not holding.standalone:
            return False
        if not gone and claim.status.allocation is not None:
            return False
        # The record can't be cleared while it has users. A pod that joined later has nothing: its write is refused
        joined_too_late = holding.named and not gone and holding.written is Written.NO
        if holding.pods and not joined_too_late:
            return False
        self._drop(holding)
        self._released(holding)
        return True


def _nodes_of(holding: Holding) -> set[str]:
    """The nodes whose devices the holding had, if its driver handles each node by itself."""
    pools = {device.pool for device in holding.allocation.devices}
    return {holding.node, *pools, *(holding.nodes or ())}
