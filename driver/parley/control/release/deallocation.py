"""Releases what pods held: first it is cleared in the API, then the driver deallocates, then the ledger drops it.

So nothing is allocated for another pod while a record of it may stand. What a standalone driver allocated it
deallocates itself; until its record is cleared, the holding stays in the ledger without users, and nobody may join
it. The same holds for what a pod used that was deleted by force, until its node confirms that it is not prepared
there any more. A claim whose class says so is kept for a time without users (`keeping`).
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.models import PodScheduling, ResourceClaim
from parley.api.names import GENERATED_LABEL
from parley.control.allocation import Busy, Saturated
from parley.control.claims.podclaims import ROOM
from parley.control.holding import Holding, Phase, Written
from parley.control.objects.mirror import owner_pod, owner_pod_uid
from parley.control.objects.pod import over, reference
from parley.control.objects.standin import is_stand_in
from parley.control.records import Records
from parley.control.release.keeping import Keeping
from parley.control.release.releases import Releases
from parley.control.release.unseen_users import UnseenUsers
from parley.control.restoring import adopt_record
from parley.control.state import State
from parley.control.wakeups import Wakeups
from parley.kube.cache import Key
from parley.kube.client import NotFound, OutcomeUnknown
from parley.kube.queue import Requeue
from parley.negotiation.availability import SelectedNodes
from parley.sdk import PodReference
from parley.sdk.recorded import driver_of_record, held_as_recorded

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Departure:
    """How a pod's use of what it holds ends.

    `departed`: it is done or gone, and its generated claims vanish by themselves, which saves a write. `bound`: it
    was bound to a node, or may have been. `prepared_on`: nodes whose kubelet has not reported that it ended; free
    is what these have unprepared.
    """

    departed: bool
    bound: bool
    prepared_on: Sequence[str] = ()


class Deallocator:
    """Ends the use of holdings; `releases` knows what nodes have to do first. `close` sees to it that no driver is
    asked to allocate for a pod any more."""

    def __init__(
        self,
        state: State,
        records: Records,
        unseen_users: UnseenUsers,
        releases: Releases,
        close: Callable[[PodReference], Awaitable[object]],
        wakeups: Wakeups,
        keeping: Keeping,
    ) -> None:
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._records = records
        self._unseen_users = unseen_users
        self.releases = releases
        self._close = close
        self._wakeups = wakeups
        self._keeping = keeping

    async def release(
        self, pod: PodReference, holdings: Sequence[Holding], departure: Departure, cleared: Sequence[Holding] = ()
    ) -> None:
        """The pod's use of the holdings ends; what nobody else uses is free afterwards, or kept.

        `cleared`: those whose use ends because somebody cleared them in the API. Raises Busy if one was reserved
        again since: the pod may be bound by now.
        """
        for holding in holdings:
            was_cleared = any(holding is other for other in cleared)
            if await self._release(holding, pod, departure, cleared=was_cleared):
                self._released(holding)

    def _released(self, holding: Holding) -> None:
        """A pod has left it: it is free, or waits for a receipt. Whoever waits for it looks again, and so is its
        claim."""
        if holding.phase is not Phase.RELEASING:
            driver = self._drivers.get(holding.driver)
            held = held_as_recorded(holding.uid, holding.node, holding.allocation)
            by_labels = isinstance(holding.nodes, SelectedNodes)  # its own node may have lost them since
            local = driver is not None and driver.is_local(held) and not by_labels
            self._wakeups.wake(("driver", holding.driver), _nodes_of(holding) if local else None)
        if holding.allocation.reserve is not None:
            self._wakeups.wake(ROOM, holding.nodes)
        if holding.named or holding.phase is Phase.ENDING or self._is_of_claim(holding):
            self._wakeups.wake(("claim", holding.namespace, holding.claim))

    def _is_of_claim(self, holding: Holding) -> bool:
        """Whether it is what a named claim had, as known by a ClaimRelease, or by the mirror of a claim that was
        forced away; or a stand-in is there for it."""
        key = (holding.namespace, holding.claim)
        claim, mirror = self._cluster.claim(key), self._cluster.mirror(key)
        left = mirror is not None and owner_pod(mirror) is None
        return left or (claim is not None and (claim.metadata.uid == holding.uid or is_stand_in(claim)))

    async def _release(self, holding: Holding, pod: PodReference, departure: Departure, *, cleared: bool) -> bool:
        """Whether the pod used it until now."""
        async with holding.lock:
            if pod.uid not in holding.pods:
                return False
            if cleared and await self._records.is_reserved(holding, pod):
                raise Busy  # what another pod uses was put right, for all its pods
            missed = self._unseen_users.missed(holding)
            ends = not self._stays(holding) or holding.owed or departure.prepared_on or missed
            unseen = await self._unseen_users.check(holding) if ends and len(holding.pods) == 1 else ()
            doubtful = {*unseen, *self._unseen_users.join_known(holding), *missed}
            self.releases.owe(holding, [*departure.prepared_on, *(doubtful if len(holding.pods) == 1 else ())])
            self._keeping.left(holding, bound=departure.bound or bool(doubtful))
            if len(holding.pods) > 1 or (self._stays(holding) and not holding.owed):
                await self.releases.note(holding)
                await self._records.unreserve(holding, pod)
                self._ledger.leave(holding, pod)
            elif holding.owed:
                await self._begin_releasing(holding)
                await self._conclude(holding)
            else:
                await self._finish(holding, departed=departure.departed)
            return True

    def _is_there(self, holding: Holding) -> bool:
        """Whether it has not ended while somebody waited for its lock: the claim may be allocated anew by now."""
        return self._ledger.get(holding.uid) is holding

    async def _finish(self, holding: Holding, *, departed: bool) -> None:
        """The holding ends. What pods left on its nodes is removed first; when that has begun nobody can come to
        use it any more, whatever fails."""
        driver = self._drivers.get(holding.driver)
        leaves_data = driver is not None and driver.leaves_data
        with holding.entering(Phase.LEAVING):
            if leaves_data:
                await self.releases.record_lost_nodes(holding)
            if not leaves_data or not self.releases.owes_removal(holding):
                await self._end(holding, departed=departed)
                return
            await self._records.clear_mirror(holding)  # until then a scheduler may let others in
            holding.written = Written.NO
        holding.phase = Phase.LEAVING
        self.releases.owe_removal(holding)
        await self._begin_releasing(holding)

    def _stays(self, holding: Holding) -> bool:
        """Whether it stays allocated without users. If its claim is being deleted it goes afterwards."""
        kept = holding.immediate or self._keeping.seconds_left(holding) > 0
        return kept or bool(self._ledger.used_by(holding))

    async def _begin_releasing(self, holding: Holding) -> None:
        """Nobody uses the holding, but it may be prepared somewhere: it stays, for nobody to join."""
        with holding.entering(Phase.LEAVING):
            await self.releases.note(holding)
            await self._records.clear_mirror(holding)
            holding.written = Written.NO
            self._keeping.begin_anew(holding)  # until now a scheduler may have let in others, unseen
            await self._records.record_releasing(holding)
        self._ledger.release(holding)
        holding.phase = Phase.RELEASING
        self.releases.look_again(holding)

    async def sync(self, uid: str) -> Requeue | None:
        """See which nodes still owe receipts for the holding; what is prepared nowhere any more is free."""
        await self.releases.follow_lost_nodes(uid)
        while (holding := self._ledger.get(uid)) is not None:
            try:
                if await self._sync(holding):
                    return None
            except Saturated:
                return Requeue()
        await self.releases.waive_needless(uid)
        return None

    async def _sync(self, holding: Holding) -> bool:
        """Whether it was there still."""
        async with holding.lock:
            if not self._is_there(holding):
                return False
            if holding.phase is Phase.ENDING:
                await self._deallocate(holding)
                self._drop(holding)
                self._released(holding)
                return True
            begins = holding.phase is Phase.LEAVING and not holding.standalone
            if begins:
                # An earlier leader did not get that far, or an attempt failed.
                await self._begin_releasing(holding)
            else:
                if holding.joinable:
                    await self.releases.retract_lost_nodes(holding)
                    await self.releases.owe_deleted(holding)
                await self.releases.note(holding)
                if holding.owed and holding.phase is Phase.RELEASING:
                    await self._records.record_releasing(holding)
                    await self.releases.request_receipts(holding)
            ended = await self._conclude(holding)
        if begins or ended:
            self._released(holding)
        return True

    async def _conclude(self, holding: Holding) -> bool:
        """Whether the holding is free now, because no node owes anything for it any more."""
        if holding.phase is not Phase.RELEASING or holding.owed:
            return False
        if self._keeping.seconds_left(holding):
            self._keeping.begin_anew(holding)  # a receipt may have come while nobody led
        if self._stays(holding) and not holding.removing:
            await self._records.keep_without_users(holding)
            holding.phase = Phase.HELD
            return True
        await self._finish(holding, departed=True)
        return (
            self._ledger.get(holding.uid) is None
        )  # a late record may have come to it meanwhile, and says nothing

    async def release_unused(self, holding: Holding, still: Callable[[], bool] = lambda: True) -> None:
        """Nobody uses the holding: it is recorded without users. Raises Busy if a pod came to use it, or it is not
        `still` to be released."""
        async with holding.lock:
            unseen = await self._unseen_users.check(holding)
            unused = not holding.pods and not self._ledger.used_by(holding)
            if not unused or not holding.joinable or not still() or not self._is_there(holding):
                raise Busy
            self.releases.owe(holding, unseen)
            if holding.owed:
                await self._begin_releasing(holding)
                await self._conclude(holding)
            else:
                await self._finish(holding, departed=False)
        self._released(holding)

    async def _end(self, holding: Holding, *, departed: bool) -> None:
        """Clear it in the API, then deallocate, then drop it. If clearing fails the holding is as it was."""
        with holding.entering(Phase.LEAVING):
            if holding.named or not departed or not self._vanishes(holding):
                await self._records.clear_mirror(holding)
            if holding.standalone:
                gone = await self._request_deallocation(holding, departed=departed)
            else:
                await self._deallocate(holding)
                gone = True
        if gone:
            self._drop(holding)
        else:
            self._ledger.release(holding)

    def _vanishes(self, holding: Holding) -> bool:
        """Whether Kubernetes deletes the generated claim with its pod, and no other pod can come to use it until
        then: the scheduler lets in whatever names it, unless a policy keeps it from that."""
        key = (holding.namespace, holding.claim)
        mirror = self._cluster.mirror(key)
        if mirror is None or mirror.status.allocation is None:
            return True
        users = {user.uid for user in mirror.status.reserved_for}
        if mirror.metadata.deletion_timestamp and not users:
            return True
        ours = owner_pod_uid(mirror) in holding.pods and users <= holding.pods.keys()
        return ours and all(over(pod) for pod in self._cluster.pods_naming(key))

    def _drop(self, holding: Holding) -> None:
        self._ledger.drop(holding)
        self.releases.ended(holding.uid)
        name = holding.path
        log.info("released", claim=name, driver=holding.driver, node=holding.node)
        for used in map(self._ledger.get, holding.uses):
            if used is not None and not used.pods:
                self._wakeups.wake(("claim", used.namespace, used.claim))
        self._adopt_next(holding)

    def _adopt_next(self, ended: Holding) -> None:
        """Another claim has the name by now, and a standalone driver may have allocated it without being asked:
        that was not taken over as long as the name was the ended holding's."""
        claim = self._cluster.claim((ended.namespace, ended.claim))
        if claim is None or claim.metadata.uid == ended.uid or driver_of_record(claim) in self._drivers:
            return
        if not self._cluster.own_writes.unseen(claim.metadata):
            adopt_record(self._state, claim)

    async def _deallocate(self, holding: Holding) -> None:
        """Its record is cleared, and its driver gives it back. If the driver fails, it may have done so: nobody
        may use it any more, and the driver is asked again after a pause."""
        driver = self._drivers[holding.driver]
        if driver.is_saturated:
            raise Saturated
        if holding.named and holding.phase is not Phase.ENDING:
            await self._records.clear_claim(holding)
        try:
            await driver.deallocate(holding.uid)
        except BaseException:
            if holding.phase is not Phase.ENDING:
                holding.phase = Phase.ENDING
                self._ledger.release(holding)
                self.releases.look_again(holding)
            raise

    async def _request_deallocation(self, holding: Holding, *, departed: bool) -> bool:
        """Ask the standalone driver to deallocate; whether nobody needs to wait until it did.

        The stand-in of a pod that is gone is deleted when its claim is looked at, that of one that has ended in
        `pod_ended`: either tells the driver.
        """
        if departed and not holding.named:
            return True
        for pod in self._asking(holding):
            await self._close(pod)
        try:
            gone = await self._asked(holding)
        except OutcomeUnknown:  # the driver may have begun: nobody may use the holding any more
            gone = False
        if not gone and self._is_unasked(holding):
            self._wakeups.wake(("claim", holding.namespace, holding.claim))
        return gone

    def _is_unasked(self, holding: Holding) -> bool:
        """Whether its standalone driver has to be asked to deallocate it once more: the answer to the request was
        lost, or the driver has met it and then allocated again, because a late write selected a node."""
        if not holding.standalone or holding.phase is not Phase.LEAVING:
            return False
        return not holding.record_written.is_settled or self._records.shows_unasked(holding)

    def _asking(self, holding: Holding) -> Iterable[PodReference]:
        """The pods that use it, and those for which PodSchedulings ask the driver to allocate the claim."""
        found, key = dict(holding.pods), (holding.namespace, holding.claim)
        claim = self._cluster.claim(key)
        names = [pod.metadata.name for pod in self._cluster.pods_naming(key)]
        names += [owner.name for owner in claim.metadata.owner_references] if claim is not None else []
        for name in names:
            scheduling = self._cluster.scheduling((holding.namespace, name))
            if scheduling is not None and _selects_for(scheduling, holding.claim):
                owners = scheduling.metadata.owner_references
                found |= {owner.uid: PodReference(holding.namespace, name, owner.uid) for owner in owners}
        return found.values()

    async def _asked(self, holding: Holding) -> bool:
        """Ask the driver, unless it has deallocated. Whether it has; if not, the cache will show when it does."""
        try:
            await self._records.request_deallocation(holding)
        except NotFound:
            return True
        return not self._records.shows_allocation(holding)

    async def ask_again(self, holding: Holding) -> None:
        """Ask the standalone driver to deallocate, if that is to be done again. Raises what a client raises."""
        if not self._is_unasked(holding):
            return
        async with holding.lock:
            if not self._is_there(holding) or holding.pods or not self._is_unasked(holding):
                return
            if not await self._request_deallocation(holding, departed=False):
                return
            self._drop(holding)
        self._released(holding)

    async def pod_ended(self, pod: PodReference) -> None:
        """The pod has ended, its object stays: its stand-ins go now, with what drivers still do for them."""
        for claim in self._cluster.stand_ins(pod):
            if not claim.metadata.deletion_timestamp:
                await self._records.stand_ins.delete(claim)

    async def delete_replaced(self, pod: Pod) -> None:
        """A generated claim of the pod was recreated before anything was allocated for it, and another stand-in
        stands for it now: the former one goes, and with it what its driver may have allocated since."""
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
        """Another client may have changed a built-in claim of ours."""
        if old is not None and new is not None:
            self._unseen_users.changed(old, new)

    def pod_gone(self, pod: Pod) -> None:
        """The informer showed the pod's end."""
        self._unseen_users.gone(pod)

    def record_changed(self, claim: ResourceClaim, *, gone: bool) -> None:
        """A Parley claim is as its driver left it: what is not allocated any more and nobody uses is free."""
        holding = self._ledger.of_claim(claim.metadata.namespace, claim.metadata.name)
        if holding is None or not holding.standalone or holding.pods:
            return
        if gone or claim.status.allocation is None:
            self._drop(holding)
            self._released(holding)


def _selects_for(scheduling: PodScheduling, claim: str) -> bool:
    """Whether it asks a standalone driver to allocate the claim."""
    asked = any(one.resource_claim_name == claim for one in scheduling.spec.claims)
    return asked and bool(scheduling.spec.selected_node)


def _nodes_of(holding: Holding) -> set[str]:
    """The nodes whose devices it held, if its driver deals with each node by itself."""
    pools = {device.pool for device in holding.allocation.devices}
    return {holding.node, *pools, *(holding.nodes or ())}
