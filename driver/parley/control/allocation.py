"""Lets embedded drivers allocate on the selected node. In memory; nothing is written to the API here.

All or nothing: if one driver fails, what the others allocated for this attempt is released. An allocation is in
the ledger before its first write to the API, so it is not given to others while a record of it may exist.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from parley.api.builtin import Pod
from parley.api.models import ResourceClaim, ResourceClass
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.demand import Demand, Requests, Reserving, must_record_units
from parley.control.decision.kept import kept_from
from parley.control.holding import Holding
from parley.control.limited_driver import CALL_SECONDS
from parley.control.objects import mirror as mirrors
from parley.control.objects.pod import priority, reference
from parley.control.room import Requester, room_shortage
from parley.control.state import State
from parley.control.wakeups import Listener
from parley.negotiation.availability import KnownNodes, NodeLabels, SelectedNodes, words
from parley.negotiation.requests import requested
from parley.negotiation.waiting import Topic
from parley.sdk import Allocation, PodReference, Request
from parley.sdk.checks import DriverFault, failure_text
from parley.sdk.recorded import held_as_recorded

_Allocated = Mapping[str, tuple[str, Allocation]]
"""The drivers' allocations, each with the driver's name, by claim entry."""


class AllocationFailed(Exception):
    """Raised when a driver could not allocate; nothing is held for this attempt then."""

    def __init__(self, driver: str, node: str, cause: Exception) -> None:
        super().__init__(f"driver {driver} could not allocate on node {node}: {failure_text(cause)}")


class RoomTaken(AllocationFailed):
    """Raised when the node lost the room that it had when it was selected; nothing is held then."""

    def __init__(self, node: str, why: str) -> None:
        Exception.__init__(self, f"node {node}: {why}")


class Busy(Exception):
    """Raised when one of the claims is being allocated for others, or released, at this moment."""


class Saturated(Busy):
    """Raised when so many slow calls of a driver are under way that one more would keep the controller's workers
    from other drivers' pods. No topic is woken when they end: try again a moment later."""

    def __init__(self, driver: str) -> None:
        super().__init__(f"driver {driver} is slow, and takes no more calls until some have ended")


class Aborted(Busy):
    """Raised when the pod ended while a driver was allocating for it; nothing is held."""


def _ignore_topic(_: Topic, _nodes: Collection[str] | None) -> None:
    """Nothing waits."""


class Allocator:
    """Lets drivers allocate into the ledger. `records` writes holdings to the API, `deallocation` ends them."""

    def __init__(self, state: State, wake: Listener = _ignore_topic) -> None:
        """`wake` is called with the topics of drivers whose allocations were undone because the attempt failed."""
        self._wake = wake
        self._state = state
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._under_way: dict[str, asyncio.Timeout] = {}

    async def allocate(
        self, pod: Pod, claims: Sequence[PodClaim], demand: Demand, node: str, *, offered: bool
    ) -> None:
        """Allocate all of the pod's pending claims on the node. The ledger has them afterwards, the API not yet.

        Raises AllocationFailed, Aborted or Busy, with nothing held.
        """
        uids = [claim.uid for claim in claims]
        if not self._ledger.allocating.keys().isdisjoint(uids):
            raise Busy
        self._ledger.allocating.update(dict.fromkeys(uids, pod.metadata.uid))
        try:
            counts = self._count_for_limits(claims, demand)

            def holdings(allocated: _Allocated) -> list[Holding]:
                user, known = reference(pod), self._state.cluster
                made = [_holding(user, claim, node, *allocated[claim.entry], known) for claim in claims]
                for claim, holding in zip(claims, made, strict=True):
                    holding.units, holding.offered = counts[claim.entry], offered
                    holding.records_units = demand.records_units(claim)
                return made

            why_no_room = partial(self._why_no_room, pod, demand, node, offered=offered)
            await self._allocate(uids, demand.requests, node, why_no_room, holdings)
        finally:
            for uid in uids:
                del self._ledger.allocating[uid]

    async def allocate_without_pod(
        self, claim: ResourceClaim, class_: ResourceClass, demand: Demand, node: str
    ) -> Holding:
        """Allocate a claim on the node without a pod. The ledger has it afterwards, the API not yet.

        Raises AllocationFailed or Busy, with nothing held.
        """
        meta, driver = claim.metadata, class_.driver_name
        (asked,) = demand.requests[driver].claims
        units = self._drivers[driver].units(asked)
        refers = (claim.spec.parameters_ref or class_.parameters_ref) is not None
        self._ledger.limits.count(meta.uid, class_.metadata.name, meta.namespace, units)

        def holdings(allocated: _Allocated) -> list[Holding]:
            return [
                Holding(
                    uid=meta.uid,
                    namespace=meta.namespace,
                    claim=meta.name,
                    entry="",
                    named=True,
                    driver=driver,
                    node=node,
                    allocation=allocated[asked.name][1],
                    pods={},
                    class_name=class_.metadata.name,
                    units=units,
                    records_units=must_record_units(self._drivers[driver], refers=refers),
                    immediate=True,
                    node_part=class_.node_part == "Required",
                    known_nodes=self._state.cluster,
                )
            ]

        def why_no_room(reserving: Sequence[Reserving]) -> str:
            kept = self._why_kept(meta.uid, None, demand, node)
            return kept or room_shortage(self._state, node, Requester(meta.namespace), reserving)

        (holding,) = await self._allocate([meta.uid], demand.requests, node, why_no_room, holdings)
        return holding

    async def _allocate(
        self,
        uids: Sequence[str],
        requests: Requests,
        node: str,
        why_no_room: Callable[[Sequence[Reserving]], str],
        make_holdings: Callable[[_Allocated], list[Holding]],
    ) -> list[Holding]:
        """Allocate all requests or none. The claims of these UIDs count for limits already. `why_no_room` returns
        why the node lacks room for what they reserve, or "". `make_holdings` makes the ledger's entries of the
        drivers' allocations."""
        allocated: dict[str, tuple[str, Allocation]] = {}
        if saturated := next((name for name in requests if self._drivers[name].is_saturated), None):
            await self._back_out(uids, requests, {})
            raise Saturated(saturated)
        try:
            for name, request in requests.items():
                try:
                    allocations = await self._call_driver(name, request, node)
                except Aborted:
                    raise
                except Exception as error:
                    raise AllocationFailed(name, node, error) from error
                allocated.update({entry: (name, allocation) for entry, allocation in allocations.items()})
            if self._is_held_by_standalone(*uids):
                raise Busy
            if why := why_no_room(_reserving(requests, allocated)):
                raise RoomTaken(node, why)
            new = make_holdings(allocated)
            for holding in new:
                holding.shareable = self._is_shareable(holding)
            if why := self._set_uses(new):
                raise RoomTaken(node, why)
        except Exception:
            await self._back_out(uids, requests, allocated)
            for name in requests:  # pods that were evaluated meanwhile found less free
                self._wake(("driver", name), (node,) if self._drivers[name].is_node_local else None)
            raise
        for holding in new:
            self._ledger.add(holding)
        return new

    def _is_held_by_standalone(self, *uids: str) -> bool:
        """Whether the standalone driver that the class had before has recorded an allocation of one of these
        claims while this driver allocated. The recorded one counts: pods may use it."""
        holdings = map(self._ledger.get, uids)
        return any(holding is not None and holding.standalone for holding in holdings)

    def _is_shareable(self, holding: Holding) -> bool:
        """As class and built-in claim are now: either may have changed while the driver allocated."""
        mirror = self._state.cluster.mirror((holding.namespace, holding.claim))
        return mirrors.may_be_shared(mirror, self._state.cluster.class_(holding.class_name))

    def _set_uses(self, new: Sequence[Holding]) -> str:
        """Set which claims the new holdings use. Returns why one of these can't be used; "" if all can."""
        for holding in new:
            held = held_as_recorded(holding.uid, holding.node, holding.allocation)
            try:
                holding.uses = tuple(self._drivers[holding.driver].uses(held))
            except DriverFault as fault:
                return str(fault)
        beside = {holding.uid: holding for holding in new}
        problems = (self._why_unusable(holding, uid, beside) for holding in new for uid in holding.uses)
        return next(filter(None, problems), "")

    def _is_recordable(self, holding: Holding) -> bool:
        """Whether the named claim exists, so that its allocation can be recorded, or its mirror shows that.
        Otherwise a new leader would not know of it."""
        claim = self._state.cluster.claim_with_uid((holding.namespace, holding.claim), holding.uid)
        return claim is not None or holding.written.is_known

    def _why_unusable(self, holding: Holding, uid: str, beside: Mapping[str, Holding]) -> str:
        """Why the new holding can't use the one of that UID, allocated `beside` it or before; "" if it can."""
        used = beside.get(uid) or self._ledger.get(uid)
        if used is None or not used.joinable:
            what = f"claim {used.path}" if used is not None else f"the claim with UID {uid}"
            return f"claim {holding.path} needs {what}, which is being released: it is tried again after that"
        if uid not in beside and not self._is_recordable(used):
            return f"claim {holding.path} needs claim {used.path}, which is gone"
        is_its_own = used.named and (used.driver, used.namespace) == (holding.driver, holding.namespace)
        in_circles = uid in beside and not beside.keys().isdisjoint(used.uses)
        if is_its_own and not in_circles:
            return ""
        return (
            f"driver {holding.driver} lets claim {holding.path} use claim {used.path}: it has to be one of its "
            "own named claims in the same namespace, and must not use a claim itself"
        )

    def _count_for_limits(self, claims: Sequence[PodClaim], demand: Demand) -> dict[str, int]:
        counts = demand.units()
        for claim in claims:
            assert claim.class_ is not None
            self._ledger.limits.count(
                claim.uid, claim.class_.metadata.name, demand.pod.namespace, counts[claim.entry]
            )
        return counts

    def abort(self, pod_uid: str) -> None:
        """Cancel the driver's call that is allocating for the pod: the pod has ended."""
        scope = self._under_way.pop(pod_uid, None)
        if scope is not None and not scope.expired():
            scope.reschedule(asyncio.get_running_loop().time())

    async def _call_driver(self, driver: str, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        """Raises TimeoutError if the driver takes too long, Aborted if the pod ended; nothing is held then."""
        pod, scope = request.pod.uid or request.claims[0].uid, asyncio.timeout(CALL_SECONDS)
        self._under_way[pod] = scope
        try:
            async with scope:
                allocations = await self._drivers[driver].allocate(request, node)
        except TimeoutError as error:
            if not scope.expired():
                raise  # the driver's own
            await self._drivers[driver].undo([claim.uid for claim in request.claims])
            if self._under_way.get(pod) is not scope:
                raise Aborted from error
            raise TimeoutError(
                f"no result within {CALL_SECONDS:g} s: a driver that takes longer has to set asynchronous = True"
            ) from error
        finally:
            if self._under_way.get(pod) is scope:
                del self._under_way[pod]
        for name, allocation in allocations.items():
            if why := self._why_not_available(allocation, node):
                await self._drivers[driver].undo([claim.uid for claim in request.claims])
                raise DriverFault(f"claim {name!r}: {why}")
        return allocations

    def _why_not_available(self, allocation: Allocation, node: str) -> str:
        """Why the allocation can't be used on the node that it was made for; "" if it can."""
        on = allocation.available_on
        if on and isinstance(on, tuple) and node not in on:
            text = f"available_on has not {node!r}, the node on which the claim was to be allocated"
            return f"{text}: correct the driver"
        if not isinstance(on, NodeLabels) or node in SelectedNodes(self._state.cluster, [on.selector]):
            return ""
        return (
            f"available_on selects {words(on)}, and node {node}, on which the claim was to be allocated, is none "
            "of them now: it is tried again. If it stays so, correct the driver, or the labels of the node"
        )

    def _why_no_room(
        self, pod: Pod, demand: Demand, node: str, reserving: Sequence[Reserving], *, offered: bool
    ) -> str:
        """Why pod or reservations do not fit on the node any more, its room is kept for others, or the scheduler
        has chosen another of the `offered` nodes since; else ""."""
        if offered and (chosen := self._chosen_since(pod, node)):
            return f"the scheduler has chosen node {chosen} since"
        if kept := self._why_kept(pod.metadata.uid, priority(pod), demand, node):
            return kept
        if not reserving and not self._ledger.reserving(node):
            return ""
        return room_shortage(self._state, node, Requester.of(self._state, pod, requested(pod).items()), reserving)

    def _chosen_since(self, pod: Pod, node: str) -> str:
        """The other node that the scheduler has nominated since the allocation began; "" for none."""
        now = self._state.cluster.pod_with_uid(reference(pod))
        nominated = now.status.nominated_node_name if now is not None else ""
        return nominated if nominated not in ("", node, pod.status.nominated_node_name) else ""

    def _why_kept(self, uid: str, priority: int | None, demand: Demand, node: str) -> str:
        uids = [claim.uid for request in demand.requests.values() for claim in request.claims]
        try:
            return kept_from(self._state, uid, priority, demand, node, uids)
        except DriverFault as fault:
            return str(fault)

    async def _back_out(self, uids: Sequence[str], requests: Requests, allocated: _Allocated) -> None:
        for entry, (driver, _) in allocated.items():
            uid = next(claim.uid for claim in requests[driver].claims if claim.name == entry)
            await self._drivers[driver].undo([uid])
        for uid in uids:
            self._ledger.stop_counting(uid)

    def join(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Add the pod to the users of its allocated claims. Raises Busy if one is being released, or is full."""
        holdings = [claim.holding for claim in claims if claim.holding is not None]
        if any(not holding.joinable or _is_full(holding, pod) for holding in holdings):
            raise Busy
        for holding in holdings:
            self._ledger.join(holding, reference(pod))


def _reserving(requests: Requests, allocated: _Allocated) -> list[Reserving]:
    """The claims whose allocations reserve room."""
    return [
        Reserving(claim.uid, f"{request.pod.namespace}/{claim.claim}", reserve.thousandths())
        for request in requests.values()
        for claim in request.claims
        if (reserve := allocated[claim.name][1].reserve) is not None
    ]


def _is_full(holding: Holding, pod: Pod) -> bool:
    return pod.metadata.uid not in holding.pods and len(holding.pods) >= mirrors.MAX_USERS


def _holding(
    user: PodReference, claim: PodClaim, node: str, driver: str, allocation: Allocation, known_nodes: KnownNodes
) -> Holding:
    assert claim.mirror is not None
    return Holding(
        uid=claim.uid,
        namespace=user.namespace,
        claim=claim.name,
        entry=claim.entry,
        named=claim.claim is not None,
        driver=driver,
        node=node,
        allocation=allocation,
        pods={user.uid: user},
        class_name=claim.class_.metadata.name if claim.class_ is not None else "",
        node_part=claim.class_ is None or claim.class_.node_part == "Required",
        known_nodes=known_nodes,
    )
