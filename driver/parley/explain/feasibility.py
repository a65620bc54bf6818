"""Which nodes are feasible for a pod now, or if other pods were gone, by the drivers that come with Parley.

Asks the controller's own questions of the drivers in a `Snapshot`. Drivers of others can't be asked: of those
there is only what they answered.
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
from parley.control.objects.pod import arrival, over, priority, reference
from parley.explain.claims import class_name_of
from parley.explain.snapshot import Snapshot
from parley.kube.cache import Key
from parley.negotiation.answers import Answer, Answers
from parley.negotiation.states import ClaimState
from parley.negotiation.stranded import StrandedClaims
from parley.scheduler.candidates import CandidateNodes, common_nodes, may_preempt
from parley.scheduler.claim_victims import ClaimVictims, Plan, Preemptor, may_take
from parley.sdk import PodReference
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.recorded import held_as_recorded
from parley.sdk.referenced import NotRead

_DEFAULT_SCHEDULER = "default-scheduler"
"""Known to be unmodified. Which pods Parley's second scheduler places only the controller knows."""


def is_unasked(pod: Pod) -> bool:
    """Whether the pod's scheduler may be the one that asks Parley, and found no node before that.

    The cluster's own never asks, and others that don't name the device class of claims that are being negotiated.
    """
    if pod.spec.scheduler_name in ("", _DEFAULT_SCHEDULER):
        return False
    found = (c for c in pod.status.conditions if c.type == "PodScheduled" and c.reason == "Unschedulable")
    return any(DEVICE_CLASS not in c.message and EXTENDER_SAYS not in c.message for c in found)


def _place(pod: Pod) -> tuple[int, tuple[str, str, str]]:
    """In the order in which pods that wait for the same are served."""
    return -priority(pod), arrival(pod)


class PodFeasibility:
    """About one `pod`. `claims` are its claims as the controller gathers them, if not given otherwise."""

    def __init__(self, snapshot: Snapshot, pod: Pod, claims: Sequence[PodClaim] | None = None) -> None:
        self._snapshot = snapshot
        self.pod = pod
        self.claims: Sequence[PodClaim] = gather(snapshot.state, pod) if claims is None else claims
        self.pending = [c for c in self.claims if not c.problem and c.state(pod) is ClaimState.PENDING]
        self._own = frozenset(claim.holding.uid for claim in self.claims if claim.holding is not None)
        self._by_node: dict[str, list[PodReference]] | None = None
        self.problem = ""
        """Why the drivers can't even be asked."""
        try:
            self._demand = demand_of(snapshot.state.drivers, reference(pod), self.pending)
        except (BadParameters, NotRead) as error:
            self._demand, self.problem = Demand(reference(pod), {}, {}, {}, {}), str(error)

    @property
    def namespace(self) -> str:
        """The pod's."""
        return self.pod.metadata.namespace

    @property
    def wanted(self) -> frozenset[str]:
        """The classes of the claims that the pod waits for: pending ones, those that nodes are offered for, and
        those that something stands in the way of, such as another pod that uses them."""
        nothing = (ClaimState.PENDING, ClaimState.OFFERED)
        claims = (claim for claim in self.claims if claim.problem or claim.state(self.pod) in nothing)
        names = (class_name_of(self._snapshot.state, self.pod, claim) for claim in claims)
        return frozenset(filter(None, names))

    @property
    def allocated(self) -> bool:
        """Whether the pod has all of its claims."""
        return all(not c.problem and c.state(self.pod) is ClaimState.ALLOCATED for c in self.claims)

    @property
    def is_tied(self) -> bool:
        """Whether the pod is bound, or claims of it that are allocated already keep it to certain nodes."""
        return bool(self.pod.spec.node_name) or common_nodes(self.claims) is not None

    def before(self, claim: Key) -> list[PodReference]:
        """The pods of its scheduler that wait for the named claim, too, and are served first, in that order."""
        name, own = self.pod.spec.scheduler_name, _place(self.pod)
        first = [
            pod
            for pod in self._snapshot.state.cluster.pods_naming(claim)
            if not (pod.spec.node_name or pod.spec.scheduling_gates or over(pod))
            and pod.spec.scheduler_name == name
            and _place(pod) < own
        ]
        return [reference(pod) for pod in sorted(first, key=_place)]

    def would_start_over(self, claim: PodClaim) -> frozenset[str]:
        """The nodes that would do if the claim were deleted and created again."""
        class_ = self._snapshot.state.cluster.class_(claim.class_name)
        if class_ is None or claim.holding is None:
            return frozenset()
        mirror = structs.replace(claim.mirror, status=BuiltinClaimStatus()) if claim.mirror is not None else None
        anew = with_class(self._snapshot.state, replace(claim, holding=None, mirror=mirror), class_)
        claims = [anew if one.entry == claim.entry else one for one in self.claims]
        starting = PodFeasibility(self._snapshot, self.pod, claims)
        with starting.freed([claim.holding]):
            return starting.doing([node.metadata.name for node in self._snapshot.nodes])

    @property
    def drivers(self) -> frozenset[str]:
        """The drivers of pending claims that can be asked here."""
        return frozenset(self._demand.requests)

    @property
    def unpublished(self) -> list[str]:
        """Those of these drivers that hand out what node plugins publish, where none publishes anything."""
        publishing, drivers = {one.spec.driver for one in self._snapshot.slices}, self._snapshot.state.drivers
        needed = {
            claim.class_.driver_name
            for claim in self.pending
            if claim.class_ and claim.class_.node_part == "Required"
        }
        reading = {name for name in self.drivers if RESOURCE_SLICES in drivers[name].driver.watches}
        return sorted((needed & reading) - publishing) if self._snapshot.nodes else []

    @property
    def standalone(self) -> Mapping[str, str]:
        """The drivers that can't, by claim entry."""
        return {claim.entry: self._demand.drivers[claim.entry] for claim in self._demand.standalone}

    @property
    def limited(self) -> frozenset[str]:
        """The classes of pending claims whose limits leave too little; if that is not known here, as with limits
        that go by a namespace's labels and who asks may not read these, those that have limits."""
        limits, classes = self._snapshot.state.ledger.limits, self._units_by_class()
        found = {c.metadata.name for c, wanted in classes if limits.excess(c, self.namespace, wanted)}
        return frozenset(found or (class_.metadata.name for class_, _ in classes if class_.limits))

    @property
    def wants_too_much(self) -> bool:
        """Whether the limits of a pending claim's class leave too little even if nobody holds anything."""
        limits = self._snapshot.state.ledger.limits
        return any(limits.never_allow(c, self.namespace, wanted) for c, wanted in self._units_by_class())

    def _units_by_class(self) -> list[tuple[ResourceClass, dict[str, int]]]:
        """The classes of pending claims, and how much these want, by the claims' UIDs."""
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
        """By claim entry, of the drivers that can be asked. One that fails has no node, and its error as the
        reason."""
        found: dict[str, Answer] = {}
        for name, request in self._demand.requests.items():
            try:
                found.update(self._snapshot.state.drivers[name].viable(request, nodes))
            except DriverFault as fault:
                failed = Answer((), alternatives=(), reasons=dict.fromkeys(nodes, str(fault)))
                found.update({claim.name: failed for claim in request.claims})
        with self._uncounted():
            return with_room(lambda _: found, self._candidates(), self._demand)(nodes)

    def misfits(self, nodes: Sequence[str]) -> dict[str, str]:
        """Why nodes are not feasible before any driver is asked; those that do are left out."""
        fitting = self._candidates()
        with self._uncounted():
            for node in nodes:
                fitting.fits(node)
        return fitting.misfits

    def stranded(self) -> StrandedClaims | None:
        """The pod's claims that are allocated where it can't go, as the controller decides."""
        with self._uncounted():
            return stranded(self.claims, self._candidates())

    def _candidates(self) -> CandidateNodes:
        classes = [claim.class_ for claim in self.claims if claim.class_ is not None]
        return CandidateNodes(self._snapshot.state, self.pod, classes, common_nodes(self.claims), discreet=False)

    def with_room(self, nodes: Sequence[str]) -> frozenset[str]:
        """Of the nodes those that every driver that can be asked finds viable. One question about many nodes: a
        driver that refuses all it was asked about may look at every node for alternatives."""
        found = frozenset(nodes)
        for answer in self.answers(nodes).values():
            found &= frozenset(answer.viable)
        return found

    def doing(self, nodes: Sequence[str]) -> frozenset[str]:
        """Of the nodes those that are feasible and have room."""
        misfits = self.misfits(nodes)
        return self.with_room([node for node in nodes if node not in misfits])

    def preemption(self) -> Plan | None:
        """Whose claims would be taken for the pod; None if nobody's, or if nobody's need to be."""
        state = self._snapshot.state
        drivers = may_take(state, self.pod, self._demand, self.claims)
        if self.problem or not drivers or self.doing([node.metadata.name for node in self._snapshot.nodes]):
            return None
        try:
            evicts = self.pod.spec.scheduler_name == _DEFAULT_SCHEDULER and may_preempt(state.cluster, self.pod)
            preemptor = Preemptor(self.pod, self.claims, self._demand, drivers, evicts)
            with self._uncounted():
                return ClaimVictims(state, preemptor).plan()
        except DriverFault:
            return None

    def would_do(self, node: str) -> bool:
        """Whether the node comes into question, and has room."""
        return bool(self.doing([node]))

    def holders(self, node: str) -> list[PodReference]:
        """Other pods that are on the node, or hold something of the same drivers that is of use there."""
        on_node = [reference(pod) for pod in self._snapshot.on_node.get(node, ())]
        found = dict.fromkeys([*self._holding().get(node, ()), *on_node])
        return [pod for pod in found if pod.uid != self.pod.metadata.uid]

    def all_holders(self) -> list[PodReference]:
        """Other pods that hold something of the same drivers, anywhere."""
        found = dict.fromkeys(pod for pods in self._holding().values() for pod in pods)
        return [pod for pod in found if pod.uid != self.pod.metadata.uid]

    def in_the_way(self) -> list[PodReference]:
        """The same, and where the claims reserve room, all other pods on nodes."""
        on_nodes = self._snapshot.on_node.values() if self._demand.reserving else ()
        others = (reference(pod) for pods in on_nodes for pod in pods)
        found = dict.fromkeys([*self.all_holders(), *others])
        return [pod for pod in found if pod.uid != self.pod.metadata.uid]

    def _holding(self) -> dict[str, list[PodReference]]:
        """Who holds something of the drivers, by the nodes where it is of use; "" is everywhere."""
        if self._by_node is None:
            self._by_node = {}
            for holding in self._snapshot.state.ledger:
                if holding.driver in self.drivers:
                    for node in ("",) if holding.nodes is None else holding.nodes:
                        self._by_node.setdefault(node, []).extend(holding.pods.values())
        return self._by_node

    @contextmanager
    def without(self, pods: Collection[PodReference]) -> Iterator[None]:
        """Within the block the pods are gone, and so is what only they held, but for claims that this pod is to
        share: it needs room for these, too."""
        uids = {pod.uid for pod in pods}
        held = {
            holding.uid: holding
            for pod in pods
            for holding in self._snapshot.state.ledger.of_pod_name(pod.namespace, pod.name)
            if set(holding.pods) <= uids and holding.uid not in self._own and not self.outlives_its_pods(holding)
        }
        used = self._leave(pods)
        try:
            with self.freed(list(held.values())):
                yield
        finally:
            self._come_back(used)

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Within the block the pod itself, which may be about to be bound to a node, counts for none."""
        used = self._leave([] if self.pod.spec.node_name else [reference(self.pod)])
        try:
            yield
        finally:
            self._come_back(used)

    def staying(self) -> list[Holding]:
        """What may be in the way and stays allocated, whatever pods end, of claims other than the pod's own: it is
        of the same drivers, or reserves room."""
        return [
            holding
            for holding in self._snapshot.state.ledger
            if (not holding.pods or self.outlives_its_pods(holding))
            and holding.uid not in self._own
            and (holding.driver in self.drivers or holding.allocation.reserve is not None)
        ]

    def outlives_its_pods(self, holding: Holding) -> bool:
        """Whether it stays allocated without users."""
        return holding.stays_unused or self.kept_for(holding) > 0

    def kept_for(self, holding: Holding) -> int:
        """How many seconds its class keeps it when the last pod that uses it has ended."""
        class_ = self._snapshot.state.cluster.class_(holding.class_name)
        keeps = class_.when_unused if class_ is not None else None
        return keeps.keep_seconds if keeps is not None and holding.named and not holding.standalone else 0

    @contextmanager
    def freed(self, holdings: Collection[Holding]) -> Iterator[None]:
        """Within the block their drivers have it back, and nothing is reserved for it."""
        state = self._snapshot.state
        asked = [holding for holding in holdings if holding.driver in self.drivers]
        reserving = [h for h in holdings if h.allocation.reserve is not None and not h.removing]
        for holding in asked:
            state.drivers[holding.driver].forget(holding.uid)
        for holding in reserving:
            holding.removing = True  # as of a claim that has ended
        try:
            yield
        finally:
            for holding in reserving:
                holding.removing = False
            for holding in asked:
                held = held_as_recorded(holding.uid, holding.node, holding.allocation)
                state.drivers[holding.driver].restore(held)

    def _leave(self, pods: Collection[PodReference]) -> dict[PodReference, Share]:
        usage = self._snapshot.state.cluster.usage
        used: dict[PodReference, Share] = {}
        for reference_ in pods:
            share = usage.share(reference_.uid)
            if share is not None:
                used[reference_] = share
                usage.remove(reference_.uid)
        return used

    def _come_back(self, used: Mapping[PodReference, Share]) -> None:
        usage = self._snapshot.state.cluster.usage
        for reference_, share in used.items():
            pod = self._snapshot.pods.get((reference_.namespace, reference_.name))
            if pod is None or pod.spec.node_name:
                usage.put(reference_.uid, share)
            else:
                usage.assume(pod, share.node)
