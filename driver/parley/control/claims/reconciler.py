"""Reconciles named claims: their mirrors, finalizers and conditions. Pods' use is left to the scheduling paths.

A Parley claim and its mirror both carry a finalizer, so that neither is deleted while a pod uses the allocation.
The claim's condition `Accepted` shows whether it can be negotiated at all, and what to change if not.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from parley.api import reasons
from parley.api.builtin import BuiltinClaim
from parley.api.conditions import ConditionUpdate
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.names import (
    CONDITION_FAILED,
    CONDITION_NEEDED,
    CONDITION_RELEASING,
    CONDITION_STRANDED,
    FINALIZER,
    driver_finalizer,
)
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, Resource
from parley.api.wording import listed
from parley.control.allocation import Busy, Saturated
from parley.control.caches.shortened import MAX_FINALIZERS
from parley.control.claims.checks import first_problem
from parley.control.claims.mirrored import MadeMirrors
from parley.control.claims.named import (
    ACCEPTED,
    NamedClaim,
    has_mirror,
    is_of_predecessor,
    is_outdated,
    is_shared,
    mirrors,
    was_orphaned,
)
from parley.control.claims.podclaims import Problem
from parley.control.claims.stranding import Stranding
from parley.control.claims.verdict import verdict_conditions
from parley.control.holding import Holding
from parley.control.immediate import ImmediateClaims
from parley.control.objects.mirror import claim_mirror, is_mirror, owner_pod
from parley.control.objects.standin import is_left_behind, is_stand_in
from parley.control.records import Records
from parley.control.release.deallocation import Deallocator
from parley.control.release.unused_claims import UnusedClaimDeadlines
from parley.control.restoring import is_of_another_driver
from parley.control.state import State
from parley.kube.backoff import Backoff, Pauses
from parley.kube.cache import Key
from parley.kube.client import REFUSALS, AlreadyExists, Client, Conflict, NotFound
from parley.kube.queue import Requeue
from parley.sdk.recorded import driver_of_record

UNUSED_PAUSES = Backoff(first=0.2, longest=60.0)
"""Pauses before an unused allocation of a standalone driver is released, if the last one was unused as well: its
driver may allocate the claim again each time."""


class ClaimReconciler:
    """Reconciles named claims: creates their mirrors, sets and removes finalizers, writes conditions, and has
    immediate ones allocated. Workers of the queue call `sync` with a claim's key."""

    def __init__(
        self,
        client: Client,
        state: State,
        deallocator: Deallocator,
        records: Records,
        immediate: ImmediateClaims,
        unused_deadlines: UnusedClaimDeadlines,
        stranding: Stranding,
    ) -> None:
        self._client = client
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._deallocator = deallocator
        self._records = records
        self._immediate = immediate
        self._unused_deadlines = unused_deadlines
        self._stranding = stranding
        self._mirrors = MadeMirrors(client, CLAIMS)
        self._unused_pauses: dict[Key, Pauses] = {}

    def resume(self, newer: Mapping[str, ResourceClaim]) -> None:
        """Begin with the restored state. `newer` has claims, by UID, that are newer than those in the cache."""
        self._immediate.resume(newer)

    async def sync(self, key: Key) -> Requeue | None:
        """Reconcile the claim of that name. Requeues a claim that is kept without users for its deadline, and one
        on a node that takes no pods for when it is to fail or be recreated."""
        try:
            left = (await self._release_all_unused(key), await self._stranding.sync(key))
            await self._reconcile(key)
        except Saturated:
            return Requeue()
        except Conflict:
            raise  # the cache was behind
        except Exception:
            self._immediate.move_to_own_line(key)
            raise
        return Requeue(min(filter(None, left))) if any(left) else None

    async def _reconcile(self, key: Key) -> None:
        claim, mirror = self._cluster.claim(key), self._cluster.mirror(key)
        if claim is None or mirror is not None:
            self._cluster.refusals.clear("ResourceClaim", key)
        if claim is None:
            self._unused_pauses.pop(key, None)
        if claim is None or is_stand_in(claim):
            self._immediate.stop_counting(key)
        if claim is None or is_stand_in(claim) or claim.metadata.deletion_timestamp:
            self._immediate.forget(key)
        if claim is not None and claim.metadata.deletion_timestamp and await self._remove_driver_finalizers(claim):
            return  # the event of that change requeues the claim
        if claim is not None and is_left_behind(claim, mirror) and self._ledger.of_claim(*key) is None:
            await self._records.stand_ins.delete_left_behind(claim)
        elif claim is None or is_stand_in(claim):
            self._mirrors.forget(key)
            await self._clean_up_orphan(mirror)
        elif self._is_record_void(claim, mirror):
            await self._records.claims.clear_unknown_allocation(claim)
        elif claim.metadata.deletion_timestamp:
            await self._delete(claim, mirror)
        else:
            await self._keep(claim, mirror)

    def _is_record_void(self, claim: ResourceClaim, mirror: BuiltinClaim | None) -> bool:
        """Whether the claim's record shows an allocation that the ledger does not have: a late write of an earlier
        leader, or that of a driver which had no right to it. If the mirror shows it, too, a pod may be bound with
        it, and reconciling that pod handles it."""
        unknown = claim.status.allocation is not None and self._ledger.get(claim.metadata.uid) is None
        if not unknown or driver_of_record(claim) not in self._drivers:
            return unknown and is_of_another_driver(self._state, claim)
        immediate = claim.spec.allocation_mode == "Immediate"
        shown = mirror is not None and mirror.status.allocation is not None and not immediate
        return not shown and not self._cluster.own_writes.is_stale(claim.metadata)

    async def _release_all_unused(self, key: Key) -> float:
        """Release the claim's unused holdings. Returns the seconds for which one is still kept, 0 if none is."""
        left = [await self._release_unused(holding) for holding in self._ledger.all_of_claim(*key)]
        return min(filter(None, left), default=0.0)

    async def _release_unused(self, holding: Holding) -> float:
        """Release the holding if it has no users: its pod was gone before it was bound, its claim is being deleted
        or gone, or it was kept long enough. Returns the seconds for which it is still kept."""
        await self._deallocator.ask_again(holding)
        key = (holding.namespace, holding.claim)
        if holding.pods:
            self._unused_pauses.pop(key, None)
        if holding.pods or not holding.joinable or self._ledger.used_by(holding):
            return 0.0
        left = self._unused_deadlines.seconds_left(holding)
        stays = holding.immediate or left > 0 or self._is_expected(holding)
        if stays and not (holding.stays_unused and self._is_claim_deleted(holding)):
            return left
        pauses, now = self._unused_pauses.get(key), asyncio.get_running_loop().time()
        if pauses is not None and not self._is_claim_deleted(holding) and (left := pauses.left(now)) > 0:
            return left
        try:
            await self._deallocator.release_unused(holding)
        except Saturated:
            raise
        except Busy:
            return 0.0  # the cache has yet to show a reservation, or that one is removed: either is an event
        if holding.standalone:
            self._unused_pauses.setdefault(key, Pauses(UNUSED_PAUSES)).begin(now)
        return 0.0

    def _is_expected(self, holding: Holding) -> bool:
        """Whether a standalone driver is allocating its claim for a pod."""
        key = (holding.namespace, holding.claim)
        return self._ledger.of_claim(*key) is holding and self._ledger.expected_for(*key) is not None

    def _is_claim_deleted(self, holding: Holding) -> bool:
        """Whether the holding's claim is being deleted, or was removed by force."""
        claim = self._cluster.claim_with_uid((holding.namespace, holding.claim), holding.uid)
        return claim is None or bool(claim.metadata.deletion_timestamp)

    async def _keep(self, claim: ResourceClaim, mirror: BuiltinClaim | None) -> None:
        class_ = self._cluster.class_(claim.spec.resource_class_name)
        problem = first_problem(ACCEPTED, NamedClaim(self._state, claim, mirror, class_))
        self._immediate.note_verdict(claim, class_, problem)
        code, message = self._verdict(class_, problem)
        standalone = class_ is not None and class_.driver_name not in self._drivers
        verdict = verdict_conditions(claim, code, message, standalone=standalone)
        due = not code or self._is_written_next(claim)
        if not due and await self._set_conditions(claim, verdict):
            return  # the event of that change requeues the claim
        holding = self._ledger.get(claim.metadata.uid)
        if mirror is None and class_ is not None and has_mirror(claim, class_):
            await self._create(claim, shareable=is_shared(claim, class_, holding))
        elif mirror is not None and mirror.metadata.deletion_timestamp and mirrors(claim, mirror):
            await self._let_mirror_go(mirror, in_use=self._may_be_used(holding))
        elif mirror is not None and is_of_predecessor(claim, mirror):
            await self._clean_up_orphan(mirror)
        elif (
            mirror is not None and is_outdated(claim, mirror, class_, holding) and self._is_unused(claim, holding)
        ):
            await self._delete_mirror(mirror)
            return  # its deletion requeues the claim: an allocation is shareable, or not, as its mirror is
        elif mirror is not None and mirrors(claim, mirror):
            await self._ensure_finalizers(claim, mirror)
        if claim.spec.allocation_mode == "Immediate" and code != reasons.LIMIT_REACHED:
            ready = code == reasons.ACCEPTED and mirror is not None and not mirror.metadata.deletion_timestamp
            await self._immediate.sync(claim, class_ if ready else None)

    async def _set_conditions(self, claim: ResourceClaim, updates: list[ConditionUpdate]) -> bool:
        """Update the conditions; returns whether a write was needed."""
        stranded, needed = self._stranding.conditions(claim), self._needed(claim)
        ended = {CONDITION_STRANDED, CONDITION_NEEDED} - {condition.type for condition in (*stranded, *needed)}
        holding = self._ledger.get(claim.metadata.uid)
        if (holding is None or holding.standalone) and not self._cluster.own_writes.is_stale(claim.metadata):
            ended.add(CONDITION_RELEASING)  # its driver left the controller: no node is waited for any more
        if not await self._records.claims.set_conditions(claim, *updates, *stranded, *needed, without=ended):
            return False
        for condition in stranded:
            if condition.type == CONDITION_FAILED:
                await self._stranding.report_failed(claim, condition.message)
        return True

    def _needed(self, claim: ResourceClaim) -> list[ConditionUpdate]:
        """The condition `Needed` of a claim that stays allocated without users because other claims use it."""
        holding = self._ledger.get(claim.metadata.uid)
        if holding is None or holding.pods or not (users := self._ledger.used_by(holding)):
            return []
        names = listed(sorted(_with_pods(user) for user in users))
        message = f"claims need what it has, and it stays allocated until they have ended: {names}"
        return [ConditionUpdate(CONDITION_NEEDED, True, "UsedByClaims", message)]

    def _is_written_next(self, claim: ResourceClaim) -> bool:
        """Whether a standalone driver has just allocated it for a pod: reserving it writes the conditions, too."""
        meta = claim.metadata
        allocated = claim.status.allocation is not None and not claim.status.reserved_for
        return allocated and self._ledger.expected_for(meta.namespace, meta.name) is not None

    def _is_unused(self, claim: ResourceClaim, holding: Holding | None) -> bool:
        """Whether no pod uses the claim, allocated or not, or is about to."""
        unused = not holding.pods and holding.joinable if holding is not None else claim.status.allocation is None
        return unused and self._ledger.expected_for(claim.metadata.namespace, claim.metadata.name) is None

    def _verdict(self, class_: ResourceClass | None, problem: Problem | None) -> tuple[str, str]:
        """Reason and message of the condition `Accepted`; "" while the claim's parameters are being read."""
        if problem is not None:
            return ("", "") if problem.transient else (problem.code, problem.message)
        assert class_ is not None
        driver = class_.driver_name
        if driver not in self._drivers:
            return reasons.ACCEPTED, f"the class is known; driver {driver} will check the parameters"
        return reasons.ACCEPTED, "class, driver and parameters are known"

    async def _create(self, claim: ResourceClaim, *, shareable: bool) -> None:
        meta = claim.metadata
        if await self._ensure_finalizer(CLAIMS, claim):
            return  # the event of that change requeues the claim
        if await self._mirrors.is_gone(claim):
            return  # the event of its deletion requeues the claim
        self._mirrors.note_created(claim)
        try:
            await self._client.create(BUILTIN_CLAIMS, claim_mirror(claim, shareable=shareable), meta.namespace)
        except AlreadyExists:
            pass  # not in the cache yet; its event requeues the claim
        except REFUSALS as error:
            self._cluster.mirror_refused(claim, error.message)
            raise  # it is tried again, after a growing pause

    async def _ensure_finalizers(self, claim: ResourceClaim, mirror: BuiltinClaim) -> None:
        """Both have the finalizer from the start, but `parley uninstall` removes it even from claims in use."""
        await self._ensure_finalizer(CLAIMS, claim)
        await self._ensure_finalizer(BUILTIN_CLAIMS, mirror)

    async def _ensure_finalizer(self, resource: Resource[Any], found: ResourceClaim | BuiltinClaim) -> bool:
        """Add the finalizer to the object if it is missing; returns whether the object was changed."""
        meta = found.metadata
        if FINALIZER in meta.finalizers:
            return False
        finalizers = [*await self._finalizers(resource, found), FINALIZER]
        body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}
        await self._client.patch(resource, meta.name, body, meta.namespace)
        return True

    async def _other_finalizers(self, resource: Resource[Any], found: ResourceClaim | BuiltinClaim) -> list[str]:
        """The object's finalizers that are not the controller's."""
        return [name for name in await self._finalizers(resource, found) if name != FINALIZER]

    async def _finalizers(self, resource: Resource[Any], found: ResourceClaim | BuiltinClaim) -> Sequence[str]:
        """All finalizers of the object, read live if the cache may not have all. Raises NotFound."""
        meta = found.metadata
        if len(meta.finalizers) < MAX_FINALIZERS:
            return meta.finalizers
        live = await self._client.get(resource, meta.name, meta.namespace)
        names: Sequence[str] = live.metadata.finalizers
        return names

    def _may_be_used(self, holding: Holding | None) -> bool:
        """Whether pods use the holding, or it is about to be released. A holding that stays allocated without
        users, for claims that use it, or for the pod that it was allocated for, can be without its mirror for a
        moment."""
        if holding is None:
            return False
        stays = holding.stays_unused or bool(self._ledger.used_by(holding)) or self._is_expected(holding)
        return bool(holding.pods) or not stays

    async def _let_mirror_go(self, mirror: BuiltinClaim, *, in_use: bool) -> None:
        """Let a mirror that somebody deleted go when no pod uses it; it is recreated then."""
        if not in_use and FINALIZER in mirror.metadata.finalizers:
            await self._drop_finalizer(mirror)

    async def _drop_finalizer(self, mirror: BuiltinClaim) -> None:
        meta = mirror.metadata
        try:
            left = await self._other_finalizers(BUILTIN_CLAIMS, mirror)
            known = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            body = {"metadata": {**known, "finalizers": left or None}}
            await self._client.patch(BUILTIN_CLAIMS, meta.name, body, meta.namespace)
        except NotFound:
            pass  # gone already

    async def _delete(self, claim: ResourceClaim, mirror: BuiltinClaim | None) -> None:
        if self._ledger.get(claim.metadata.uid) is not None or claim.status.allocation is not None:
            if not self._cluster.own_writes.is_stale(claim.metadata):
                needed = self._needed(claim)
                gone = () if needed else (CONDITION_NEEDED,)
                # the same write shows that the claim is not ready any more
                await self._records.claims.set_conditions(claim, *needed, without=gone)
            return
        if mirror is not None and mirrors(claim, mirror):
            await self._delete_mirror(mirror)
        elif FINALIZER in claim.metadata.finalizers:
            await self._let_claim_go(claim)

    async def _remove_driver_finalizers(self, claim: ResourceClaim) -> bool:
        """Remove the finalizers that embedded drivers set on the claim when they were standalone, once nothing is
        allocated; a stand-in's allocation is in its mirror, too. Returns whether there were any."""
        uid, marks = claim.metadata.uid, {driver_finalizer(name): driver for name, driver in self._drivers.items()}
        shown = claim.status.allocation is not None and not is_stand_in(claim)
        if shown or self._ledger.all_of_claim(claim.metadata.namespace, claim.metadata.name):
            return False
        finalizers = await self._finalizers(CLAIMS, claim)
        drivers = [marks[finalizer] for finalizer in finalizers if finalizer in marks]
        for driver in drivers:
            await driver.deallocate(uid)  # it may have begun an allocation that it never recorded
        if drivers:
            await self._set_finalizers(claim, [finalizer for finalizer in finalizers if finalizer not in marks])
        return bool(drivers)

    async def _delete_mirror(self, mirror: BuiltinClaim) -> None:
        meta = mirror.metadata
        if not meta.deletion_timestamp:
            await self._client.delete(BUILTIN_CLAIMS, meta.name, meta.namespace, uid=meta.uid)
        elif FINALIZER in meta.finalizers:
            await self._drop_finalizer(mirror)

    async def _let_claim_go(self, claim: ResourceClaim) -> None:
        await self._set_finalizers(claim, await self._other_finalizers(CLAIMS, claim))

    async def _set_finalizers(self, claim: ResourceClaim, finalizers: Sequence[str]) -> None:
        meta = claim.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers or None}}
        await self._client.patch(CLAIMS, meta.name, body, meta.namespace)

    async def _clean_up_orphan(self, mirror: BuiltinClaim | None) -> None:
        """Clear or delete a mirror that lost its Parley claim, whose finalizer was removed by force, or its pod.
        While pods use it, it is the only record of that, and stays."""
        if mirror is None or not is_mirror(mirror) or owner_pod(mirror) is not None or self._is_used(mirror):
            return
        meta = mirror.metadata
        if meta.deletion_timestamp and FINALIZER in meta.finalizers:
            await self._drop_finalizer(mirror)
        elif was_orphaned(mirror) and not self._ledger.all_of_claim(meta.namespace, meta.name):
            await self._delete_mirror(mirror)
        elif mirror.status.allocation is not None and self._ledger.of_claim(meta.namespace, meta.name) is None:
            await self._records.clear(mirror)

    def _is_used(self, mirror: BuiltinClaim) -> bool:
        """Whether the mirror is reserved for pods, or the ledger has users of its claim."""
        held = self._ledger.all_of_claim(mirror.metadata.namespace, mirror.metadata.name)
        return bool(mirror.status.reserved_for) or any(holding.pods for holding in held)


def _with_pods(holding: Holding) -> str:
    pods = listed(sorted(pod.name for pod in holding.pods.values()))
    return f"{holding.path} (used by {pods})" if pods else holding.path
