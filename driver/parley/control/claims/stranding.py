"""Stranded claims: named claims whose only node takes no pods. Sets their conditions `Stranded` and `Failed`, and
recreates them if their driver wants that (`Driver.stranded`).

Only the node counts here, not the pods: whether a pod that names the claim tolerates the node's state, or finds no
room on a healthy node, is decision with the pod (`decision.stranded`).

The time since when the node takes no pods is read from its taints, or else from the claim's condition, so a new
leader keeps to the same deadline. Nothing polls: changes of the node and the deadline requeue its claims.
"""

from dataclasses import dataclass
from datetime import datetime

from parley.api import reasons
from parley.api.conditions import ConditionUpdate
from parley.api.models import ResourceClaim
from parley.api.names import API_VERSION, CONDITION_FAILED, CONDITION_STRANDED
from parley.control.allocation import Busy, Saturated
from parley.control.claims.named import failure_of, without_pod
from parley.control.decision.demand import demand_of
from parley.control.holding import Holding
from parley.control.publishing.events import Recorder
from parley.control.release.deallocation import Deallocator
from parley.control.release.releases import out_of_service
from parley.control.state import State
from parley.kube.cache import Key
from parley.kube.clock import Clock, moment
from parley.negotiation.stranded import Obstacle, remedy, unavailable, unavailable_since
from parley.sdk import Stranded
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.immediate import no_pod
from parley.sdk.referenced import ParametersUnavailable

_ANEW = "delete the claim to start over elsewhere"


@dataclass(frozen=True, slots=True)
class _Case:
    """A claim that is allocated on a node that takes no pods."""

    claim: ResourceClaim
    holding: Holding
    node: str
    obstacle: Obstacle


class Stranding:
    """Computes the conditions `Stranded` and `Failed` of stranded claims, and deallocates those that their driver
    wants recreated (`parley.sdk.Stranded`)."""

    def __init__(self, state: State, deallocator: Deallocator, recorder: Recorder, clock: Clock) -> None:
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._deallocator = deallocator
        self._recorder = recorder
        self._clock = clock

    def conditions(self, claim: ResourceClaim) -> list[ConditionUpdate]:
        """The claim's condition `Stranded`, if it is stranded, and `Failed`, if it fails now."""
        case = self._case(claim)
        if case is None:
            return []
        message = (
            f"node {case.node}, where the claim is allocated, is {case.obstacle.text} and takes no pods. "
            f"Remedy: {remedy(case.obstacle.cause, _ANEW)}"
        )
        stranded = ConditionUpdate(CONDITION_STRANDED, True, case.obstacle.cause.value, message)
        decision = self._decision(case)
        if decision.way != "Fail" or failure_of(claim) is not None or self._seconds_left(case, decision) > 0:
            return [stranded]
        failed = (
            f"node {case.node}, where it is allocated, has been {case.obstacle.text} for "
            f"{decision.after_seconds:g} s, after which claims of class {claim.spec.resource_class_name} fail: "
            "delete it and create it again"
        )
        return [stranded, ConditionUpdate(CONDITION_FAILED, True, case.obstacle.cause.value, failed)]

    async def sync(self, key: Key) -> float:
        """Deallocate the claim of that name if it is to be recreated, and it is time. Returns the seconds after
        which to reconcile it again, 0 if it only waits."""
        claim = self._cluster.claim(key)
        case = self._case(claim) if claim is not None and not claim.metadata.deletion_timestamp else None
        if case is None or failure_of(case.claim) is not None:
            return 0.0
        decision = self._decision(case)
        if decision.way == "Wait" or (decision.way == "Recreate" and not self._may_go(case.holding)):
            return 0.0
        left = self._seconds_left(case, decision)
        if left <= 0 and decision.way == "Recreate":
            await self._recreate(case)
        return max(left, 0.0)

    async def _recreate(self, case: _Case) -> None:
        """Release the claim. It is allocated again when a pod needs it, or at once if it is an immediate one."""
        try:
            await self._deallocator.release_unused(case.holding, is_wanted=lambda: self._may_go(case.holding))
        except Saturated:
            raise
        except Busy:
            return  # the cache has yet to show a pod's reservation, or the node is back: either is an event
        lost = f"node {case.node} is {case.obstacle.text}"
        note = f"{lost}: what the claim had there is given up, and the claim is allocated again"
        await self._warn(case.claim, reasons.CLAIM_RECREATED, note)

    async def report_failed(self, claim: ResourceClaim, message: str) -> None:
        """Report by an event that the claim's condition `Failed` was written."""
        await self._warn(claim, reasons.CLAIM_FAILED, message)

    async def _warn(self, claim: ResourceClaim, code: str, note: str) -> None:
        meta = claim.metadata
        await self._recorder.warn("ResourceClaim", API_VERSION, meta.namespace, meta.name, meta.uid, code, note)

    def _case(self, claim: ResourceClaim) -> _Case | None:
        holding = self._ledger.get(claim.metadata.uid)
        if holding is None or not holding.named or holding.standalone or holding.only_node is None:
            return None
        obstacle = unavailable(self._cluster.node(holding.only_node))
        return _Case(claim, holding, holding.only_node, obstacle) if obstacle is not None else None

    def _may_go(self, holding: Holding) -> bool:
        """Whether the holding's node is out of service, so that its data is lost anyway, and no pod uses it."""
        node = holding.only_node
        return (
            node is not None and not holding.pods and holding.joinable and out_of_service(self._cluster.node(node))
        )

    def _decision(self, case: _Case) -> Stranded:
        """The driver's decision: wait, recreate or fail. Without its class, or with parameters that the driver
        rejects now, the claim waits: a change of either requeues it."""
        driver = self._state.drivers.get(case.holding.driver)
        class_ = self._cluster.class_(case.claim.spec.resource_class_name)
        if driver is None or not driver.decides_stranded or class_ is None or class_.driver_name != driver.name:
            return Stranded()
        try:
            nobody = no_pod(case.claim.metadata.namespace)
            demand = demand_of(self._state.drivers, nobody, (without_pod(case.claim, class_),))
            return driver.stranded(demand.requests[driver.name].claims[0], case.node, case.obstacle.cause)
        except (BadParameters, ParametersUnavailable, DriverFault):
            return Stranded()

    def _seconds_left(self, case: _Case, decision: Stranded) -> float:
        return decision.after_seconds - (self._clock() - self._since(case)).total_seconds()

    def _since(self, case: _Case) -> datetime:
        """Since when the node takes no pods, by its taints or the claim's condition; now if neither says."""
        node = self._cluster.node(case.node)
        shown = [c.last_transition_time for c in case.claim.status.conditions if c.type == CONDITION_STRANDED]
        times = (unavailable_since(node) if node is not None else None, *map(moment, shown))
        return next((time for time in times if time is not None), self._clock())
