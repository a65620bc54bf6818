"""Which nodes are feasible for a pod now, or would be if other pods were gone, by the drivers that come with
Parley.

Asks the drivers in a `Snapshot` as the controller does. Standalone drivers can't be asked: for these there are
only the answers that they gave the controller.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from msgspec import structs

from parley.api.builtin import BuiltinClaimStatus, Pod
from parley.api.models import ResourceClass
from parley.api.names import DEVICE_CLASS, EXTENDER_SAYS
from parley.api.resources import RESOURCE_SLICES
from parley.control.caches.usage import Share
from parley.control.claims.gathering import gather, with_class
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.decide import with_room
from parley.control.decision.demand import Demand, demand_of
from parley.control.decision.stranded import stranded
from parley.control.holding import Holding
from parley.control.objects.pod import arrival, is_done, priority, reference
from parley.explain.claims import class_name_of
from parley.explain.snapshot import Snapshot
from parley.kube.cache import Key
from parley.negotiation.answers import Answer, Answers
from parley.negotiation.states import ClaimState
from parley.negotiation.stranded import StrandedClaims
from parley.scheduler.candidates import CandidateNodes, common_nodes, may_preempt
from parley.scheduler.claim_victims import ClaimVictims, Plan, Preemptor, drivers_allowing_preemption
from parley.sdk import PodReference
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.recorded import held_as_recorded
from parley.sdk.referenced import ParametersUnavailable

_DEFAULT_SCHEDULER = "default-scheduler"
"""Known not to ask Parley. The name of Parley's second scheduler is known to the controller only."""


def is_unasked(pod: Pod) -> bool:
    """Whether the pod's scheduler may be one that asks Parley, and found no node by its own filters before that.

    The cluster's own scheduler never asks Parley. Messages that name the device class of claims that are being
    negotiated are not about the scheduler's own filters.
    """
    if pod.spec.scheduler_name in ("", _DEFAULT_SCHEDULER):
        return False
    found = (c for c in pod.status.conditions if c.type == "PodScheduled" and c.reason == "Unschedulable")
    return any(DEVICE_CLASS not in c.message and EXTENDER_SAYS not in c.message for c in found)


def _serving_order(pod: Pod) -> tuple[int, tuple[str, str, str]]:
    """Sorts pods that wait for the same claim into the order in which they are served."""
    return -priority(pod), arrival(pod)


class PodFeasibility:
    """Evaluates nodes for one `pod`. `claims` are its claims as the controller gathers them, unless given."""

    def __init__(self, snapshot: Snapshot, pod: Pod, claims: Sequence[PodClaim] | None = None) -> None:
        self._snapshot = snapshot
        self.pod = pod
        self.claims: Sequence[PodClaim] = gather(snapshot.state, pod) if claims is None else claims
        self.pending = [c for c in self.claims if not c.problem and c.state(pod) is ClaimState.PENDING]
        self._own_holdings = frozenset(claim.holding.uid for claim in self.claims if claim.holding is not None)
        self._pods_by_node: dict[str, list[PodReference]] | None = None
        self.problem = ""
        """Why no driver can be asked; "" if they can."""
        try:
            self._demand = demand_of(snapshot.state.drivers, reference(pod), self.pending)
        except (BadParameters, ParametersUnavailable) as error:
            self._demand, self.problem = Demand(reference(pod), {}, {}, {}, {}), str(error)

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.pod.metadata.namespace

    @property
    def awaited_classes(self) -> frozenset[str]:
        """The classes of the claims that the pod waits for: pending and offered ones, and those with a problem,
        such as being used by another pod."""
        unallocated = (ClaimState.PENDING, ClaimState.OFFERED)
        claims = (claim for claim in self.claims if claim.problem or claim.state(self.pod) in unallocated)
        names = (class_name_of(self._snapshot.state, self.pod, claim) for claim in claims)
        return frozenset(filter(None, names))

    @property
    def allocated(self) -> bool:
        """Whether all of the pod's claims are allocated for it."""
        return all(not c.problem and c.state(self.pod) is ClaimState.ALLOCATED for c in self.claims)

    @property
    def is_pinned(self) -> bool:
        """Whether the pod is bound, or restricted to certain nodes by claims that are allocated already."""
        return bool(self.pod.spec.node_name) or common_nodes(self.claims) is not None

    def served_before(self, claim: Key) -> list[PodReference]:
        """Other pods of the same scheduler that wait for the named claim and are served before this one, in that
        order."""
        name, own = self.pod.spec.scheduler_name, _serving_order(self.pod)
        first = [
            pod
            for pod in self._snapshot.state.cluster.pods_naming(claim)
            if not (pod.spec.node_name or pod.spec.scheduling_gates or is_done(pod))
            and pod.spec.scheduler_name == name
            and _serving_order(pod) < own
        ]
        return [reference(pod) for pod in sorted(first, key=_serving_order)]

    def feasible_if_recreated(self, claim: PodClaim) -> frozenset[str]:
        """The nodes that would be feasible if the claim were deleted and created again."""
        class_ = self._snapshot.state.cluster.class_(claim.class_name)
        if class_ is None or claim.holding is None:
            return frozenset()
        mirror = structs.replace(claim.mirror, status=BuiltinClaimStatus()) if claim.mirror is not None else None
        anew = with_class(self._snapshot.state, replace(claim, holding=None, mirror=mirror), class_)
        claims = [anew if one.entry == claim.entry else one for one in self.claims]
        starting = PodFeasibility(self._snapshot, self.pod, claims)
        with starting.as_if_released([claim.holding]):
            return starting.feasible_nodes([node.metadata.name for node in self._snapshot.nodes])

    @property
    def drivers(self) -> frozenset[str]:
        """The drivers of pending claims that can be asked here."""
        return frozenset(self._demand.requests)

    @property
    def unpublished_drivers(self) -> list[str]:
        """Those of these drivers that allocate from ResourceSlices of node plugins, but have no ResourceSlice."""
        publishing, drivers = {one.spec.driver for one in self._snapshot.slices}, self._snapshot.state.drivers
        needed = {
            claim.class_.driver_name
            for claim in self.pending
            if claim.class_ and claim.class_.node_part == "Required"
        }
        reading = {name for name in self.drivers if RESOURCE_SLICES in drivers[name].driver.watches}
        return sorted((needed & reading) - publishing) if self._snapshot.nodes else []

    @property
    def standalone_drivers(self) -> Mapping[str, str]:
        """The drivers of pending claims that can't be asked here, by claim entry."""
        return {claim.entry: self._demand.drivers[claim.entry] for claim in self._demand.standalone}

    @property
    def limited_classes(self) -> frozenset[str]:
        """The classes of pending claims whose limits are reached. If that can't be determined, because limits
        select namespaces by labels that the user may not read, all classes that have limits."""
        limits, classes = self._snapshot.state.ledger.limits, self._units_by_class()
        found = {c.metadata.name for c, wanted in classes if limits.excess(c, self.namespace, wanted)}
        return frozenset(found or (class_.metadata.name for class_, _ in classes if class_.limits))

    @property
    def never_within_limits(self) -> bool:
        """Whether a pending claim requests more than its class's limits allow even if nobody holds anything."""
        limits = self._snapshot.state.ledger.limits
        return any(limits.never_allow(c, self.namespace, wanted) for c, wanted in self._units_by_class())

    def _units_by_class(self) -> list[tuple[ResourceClass, dict[str, int]]]:
        """The classes of pending claims, each with the units that its claims request, by the claims' UIDs."""
        try:
            counts = self._demand.units()
        except DriverFault:
            counts = {}
        classes = {claim.class_name: claim.class_ for claim in self.pending if claim.class_ is not None}
        return [
            (class_, {c.uid: counts.get(c.entry, 1) for c in self.pending if c.class_name == name})
            for name, class_ in classes.items()
        ]

    def answers(self, nodes: Sequence[str]) -> Answers:
        """The answers of the drivers that can be asked, by claim entry. A driver that fails finds no node viable,
        with its error as the reason."""
        found: dict[str, Answer] = {}
        for name, request in self._demand.requests.items():
            try:
                found.update(self._snapshot.state.drivers[name].viable(request, nodes))
            except DriverFault as fault:
                failed = Answer((), alternatives=(), reasons=dict.fromkeys(nodes, str(fault)))
                found.update({claim.name: failed for claim in request.claims})
        with self._without_own_usage():
            return with_room(lambda _: found, self._candidates(), self._demand)(nodes)

    def misfits(self, nodes: Sequence[str]) -> dict[str, str]:
        """Why nodes are ruled out before any driver is asked; nodes that fit are left out."""
        fitting = self._candidates()
        with self._without_own_usage():
            for node in nodes:
                fitting.fits(node)
        return fitting.misfits

    def stranded(self) -> StrandedClaims | None:
        """The pod's claims that are allocated where it can't go, by the controller's own rule."""
        with self._without_own_usage():
            return stranded(self.claims, self._candidates())

    def _candidates(self) -> CandidateNodes:
        classes = [claim.class_ for claim in self.claims if claim.class_ is not None]
        return CandidateNodes(
            self._snapshot.state, self.pod, classes, common_nodes(self.claims), hide_other_namespaces=False
        )

    def viable_nodes(self, nodes: Sequence[str]) -> frozenset[str]:
        """Those of the nodes that every driver that can be asked finds viable. Ask about many nodes at once: a
        driver that refuses all of them may search every node for alternatives, at each call."""
        found = frozenset(nodes)
        for answer in self.answers(nodes).values():
            found &= frozenset(answer.viable)
        return found

    def feasible_nodes(self, nodes: Sequence[str]) -> frozenset[str]:
        """Those of the nodes that pass the checks before drivers are asked, and are viable for all drivers."""
        misfits = self.misfits(nodes)
        return self.viable_nodes([node for node in nodes if node not in misfits])

    def preemption(self) -> Plan | None:
        """The pods that would be evicted for this one by claim preemption; None if there are none, or if a node is
        feasible without."""
        state = self._snapshot.state
        drivers = drivers_allowing_preemption(state, self.pod, self._demand, self.claims)
        if (
            self.problem
            or not drivers
            or self.feasible_nodes([node.metadata.name for node in self._snapshot.nodes])
        ):
            return None
        try:
            evicts = self.pod.spec.scheduler_name == _DEFAULT_SCHEDULER and may_preempt(state.cluster, self.pod)
            preemptor = Preemptor(self.pod, self.claims, self._demand, drivers, evicts)
            with self._without_own_usage():
                return ClaimVictims(state, preemptor).plan()
        except DriverFault:
            return None

    @property
    def nominated_node(self) -> str:
        """The node to which the pod's unmodified scheduler may be binding it, so that nobody is evicted for its
        claims meanwhile; "" if there is none, or if its scheduler asks Parley."""
        messages = [condition.message for condition in self.pod.status.conditions]
        asks = is_unasked(self.pod) or any(EXTENDER_SAYS in message for message in messages)
        return "" if asks else self.pod.status.nominated_node_name

    def is_feasible(self, node: str) -> bool:
        """Whether the node is feasible."""
        return bool(self.feasible_nodes([node]))

    def holders(self, node: str) -> list[PodReference]:
        """Other pods that are on the node, or hold claims of the same drivers that are allocated there."""
        on_node = [reference(pod) for pod in self._snapshot.on_node.get(node, ())]
        found = dict.fromkeys([*self._holders_by_node().get(node, ()), *on_node])
        return [pod for pod in found if pod.uid != self.pod.metadata.uid]

    def all_holders(self) -> list[PodReference]:
        """Other pods that hold claims of the same drivers, on any node."""
        found = dict.fromkeys(pod for pods in self._holders_by_node().values() for pod in pods)
        return [pod for pod in found if pod.uid != self.pod.metadata.uid]

    def possible_blockers(self) -> list[PodReference]:
        """Other pods whose end may make a node feasible: holders, and if the claims reserve node resources, all
        pods on nodes."""
        on_nodes = self._snapshot.on_node.values() if self._demand.reserving else ()
        others = (reference(pod) for pods in on_nodes for pod in pods)
        found = dict.fromkeys([*self.all_holders(), *others])
        return [pod for pod in found if pod.uid != self.pod.metadata.uid]

    def _holders_by_node(self) -> dict[str, list[PodReference]]:
        """The pods that hold claims of the drivers, by node; "" has those of claims that are usable everywhere."""
        if self._pods_by_node is None:
            self._pods_by_node = {}
            for holding in self._snapshot.state.ledger:
                if holding.driver in self.drivers:
                    for node in ("",) if holding.nodes is None else holding.nodes:
                        self._pods_by_node.setdefault(node, []).extend(holding.pods.values())
        return self._pods_by_node

    @contextmanager
    def as_if_gone(self, pods: Collection[PodReference]) -> Iterator[None]:
        """Within the block the pods are gone, and claims that only they held are released. Claims that this pod is
        to share stay allocated: it needs room for these, too."""
        uids = {pod.uid for pod in pods}
        held = {
            holding.uid: holding
            for pod in pods
            for holding in self._snapshot.state.ledger.of_pod_name(pod.namespace, pod.name)
            if set(holding.pods) <= uids
            and holding.uid not in self._own_holdings
            and not self.outlives_its_pods(holding)
        }
        used = self._remove_usage(pods)
        try:
            with self.as_if_released(list(held.values())):
                yield
        finally:
            self._restore_usage(used)

    @contextmanager
    def _without_own_usage(self) -> Iterator[None]:
        """Within the block the pod itself, if it is assumed on a node, is not counted in that node's usage."""
        used = self._remove_usage([] if self.pod.spec.node_name else [reference(self.pod)])
        try:
            yield
        finally:
            self._restore_usage(used)

    def outliving_holdings(self) -> list[Holding]:
        """Holdings, other than the pod's own, that may rule nodes out (same driver, or with a reservation) and
        stay allocated whichever pods end."""
        return [
            holding
            for holding in self._snapshot.state.ledger
            if (not holding.pods or self.outlives_its_pods(holding))
            and holding.uid not in self._own_holdings
            and (holding.driver in self.drivers or holding.allocation.reserve is not None)
        ]

    def outlives_its_pods(self, holding: Holding) -> bool:
        """Whether the holding stays allocated when its last pod has ended."""
        return holding.stays_unused or self.kept_for(holding) > 0

    def kept_for(self, holding: Holding) -> int:
        """For how many seconds the holding's class keeps it after the last pod that uses it has ended."""
        class_ = self._snapshot.state.cluster.class_(holding.class_name)
        keeps = class_.when_unused if class_ is not None else None
        return keeps.keep_seconds if keeps is not None and holding.named and not holding.standalone else 0

    @contextmanager
    def as_if_released(self, holdings: Collection[Holding]) -> Iterator[None]:
        """Within the block the holdings are released: their drivers forget them, and nothing is reserved for
        them."""
        state = self._snapshot.state
        asked = [holding for holding in holdings if holding.driver in self.drivers]
        reserving = [holding for holding in holdings if holding.reserves]
        for holding in asked:
            state.drivers[holding.driver].forget(holding.uid)
        for holding in reserving:
            holding.only_data = True
        try:
            yield
        finally:
            for holding in reserving:
                holding.only_data = False
            for holding in asked:
                held = held_as_recorded(holding.uid, holding.node, holding.allocation)
                state.drivers[holding.driver].restore(held)

    def _remove_usage(self, pods: Collection[PodReference]) -> dict[PodReference, Share]:
        usage = self._snapshot.state.cluster.usage
        used: dict[PodReference, Share] = {}
        for reference_ in pods:
            share = usage.share(reference_.uid)
            if share is not None:
                used[reference_] = share
                usage.remove(reference_.uid)
        return used

    def _restore_usage(self, used: Mapping[PodReference, Share]) -> None:
        usage = self._snapshot.state.cluster.usage
        for reference_, share in used.items():
            pod = self._snapshot.pods.get((reference_.namespace, reference_.name))
            if pod is None or pod.spec.node_name:
                usage.put(reference_.uid, share)
            else:
                usage.assume(pod, share.node)
