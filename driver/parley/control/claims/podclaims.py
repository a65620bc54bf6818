"""`PodClaim`: one of a pod's claims with all facts about it, its state, and the problem that it has. Pure.

`gathering` makes it, `negotiation` decides by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.names import CONDITION_ALLOCATED
from parley.control.caches.own_writes import OwnWrites
from parley.control.claims.on_demand import OnDemand
from parley.control.holding import Holding
from parley.control.objects.class_request import ClassRequest
from parley.control.objects.mirror import (
    can_never_reserve,
    driver_of,
    is_offer,
    may_be_shared,
    nodes_of,
    offer_ended,
    offer_stands,
)
from parley.negotiation.states import ClaimState
from parley.negotiation.waiting import Topic

NODES: Topic = ("nodes",)
"""Changes when nodes or the pods on them do: a scheduler may decide otherwise."""

ROOM: Topic = ("room",)
"""Changes when pods use less of a node, including pods whose node is selected and that are not seen bound yet."""

PREEMPTION: Topic = ("preemption",)
"""Changes when classes change which pods may be evicted for their claims."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a claim can't be negotiated now."""

    code: str
    message: str
    topics: tuple[Topic, ...]
    transient: bool = False
    """Whether the problem ends by itself within moments, so that it is not reported."""
    reported_after: float = 0.0
    """Seconds after which a transient problem that may last is reported all the same; 0 is never."""
    fails_pod: bool = False
    """Whether the problem never ends, and the claim's class asks to fail pods then."""
    awaits_successor: bool = False
    """Whether the pod can't have this claim, only a later one of its name: it has no turn for this one."""

    @property
    def passes(self) -> bool:
        """Whether the problem is sure to end by itself."""
        return self.transient and not self.reported_after

    @property
    def keeps_nomination(self) -> bool:
        """Whether a pod with the problem keeps its nomination: it ends within moments, and no other pod has the
        claim or gets it."""
        return self.transient and self.code != reasons.CLAIM_IN_USE


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One of the pod's claims. `mirror` is None only if there is a problem.

    `claim` is the Parley claim of a named one. `standalone` is set if a standalone driver is to allocate: it
    writes into `written`, the named claim or the stand-in of a generated one. `own_writes` knows whether the
    mirror is older than our latest write of it. `subject` is the object that the user wrote, in messages, if it is
    a template. `to_create` is a named claim that does not exist and that a template makes on demand.
    """

    entry: str
    name: str
    mirror: BuiltinClaim | None = None
    claim: ResourceClaim | None = None
    written: ResourceClaim | None = None
    standalone: bool = False
    class_: ResourceClass | None = None
    class_request: ClassRequest | None = None
    holding: Holding | None = None
    problem: Problem | None = None
    own_writes: OwnWrites = field(default_factory=OwnWrites)
    subject: str = ""
    to_create: OnDemand | None = None

    @property
    def uid(self) -> str:
        """The UID by which driver and ledger know the claim."""
        if self.holding is not None:
            return self.holding.uid
        if self.claim is not None:
            return self.claim.metadata.uid
        assert self.mirror is not None
        return self.mirror.metadata.uid

    @property
    def class_name(self) -> str:
        """The class that the claim asks for."""
        return self.class_request.class_name if self.class_request is not None else ""

    @property
    def refers(self) -> bool:
        """Whether parameters of the claim or its class are in an object that `parametersRef` names."""
        of_class = self.class_ is not None and self.class_.parameters_ref is not None
        return of_class or (self.class_request is not None and self.class_request.reference is not None)

    @property
    def is_free(self) -> bool:
        """Whether the claim is an exclusive named one that no pod uses, allocated or not."""
        if self.claim is None or self.mirror is None:
            return False
        if self.holding is None:
            return not may_be_shared(self.mirror, self.class_)
        return not self.holding.shareable and not self.holding.pods

    def state(self, pod: Pod) -> ClaimState:
        """The claim's state for the pod, from the ledger and the mirror in the cache."""
        assert self.mirror is not None
        allocation, holding = self.mirror.status.allocation, self.holding
        if self.own_writes.is_stale(self.mirror.metadata):
            return ClaimState.STALE
        if holding is None and allocation is None:
            return ClaimState.PENDING
        if holding is None:
            return ClaimState.OFFERED if offer_stands(self.mirror) else ClaimState.UNKNOWN
        if pod.metadata.uid not in holding.pods:
            return ClaimState.JOINABLE
        if pod.spec.node_name and not holding.may_run_on(pod.spec.node_name) and len(holding.pods) == 1:
            return ClaimState.MISPLACED
        if allocation is not None and not pod.spec.node_name and is_offer(allocation) != holding.offered:
            return ClaimState.MISPLACED
        if not pod.spec.node_name and self._is_recreated(holding):
            return ClaimState.MISPLACED
        if can_never_reserve(self.mirror, pod) or (allocation is not None and self.is_node_given_up(pod)):
            return ClaimState.MISPLACED
        if allocation is None:
            return ClaimState.CLEARED if holding.written.is_known else ClaimState.UNWRITTEN
        return ClaimState.ALLOCATED if self._recorded(pod, holding) else ClaimState.UNWRITTEN

    def _is_recreated(self, holding: Holding) -> bool:
        """Whether the holding is of an earlier object of the generated claim: somebody deleted that."""
        return self.mirror is not None and not holding.named and self.mirror.metadata.uid != holding.uid

    def is_node_given_up(self, pod: Pod) -> bool:
        """Whether the scheduler gave up the offered node that it had chosen: it may choose any offered node next,
        whichever the driver has allocated on."""
        offered = self.holding is not None and self.holding.offered
        return offered and not pod.spec.node_name and not self.is_reserved(pod)

    def _recorded(self, pod: Pod, holding: Holding) -> bool:
        assert self.mirror is not None
        if not (holding.written.is_settled and holding.record_written.is_settled):
            return False  # a write that is still to arrive may clear what the API shows
        if holding.offered and offer_ended(self.mirror) != CONDITION_ALLOCATED:
            return False
        return self.is_reserved(pod)

    @property
    def offered_nodes(self) -> Sequence[str]:
        """The nodes that the mirror's allocation names."""
        allocation = self.mirror.status.allocation if self.mirror is not None else None
        return nodes_of(allocation) if allocation is not None else ()

    @property
    def offered_by(self) -> str:
        """The driver that the mirror's allocation names."""
        allocation = self.mirror.status.allocation if self.mirror is not None else None
        return driver_of(allocation) if allocation is not None else ""

    @property
    def offer_ended(self) -> bool:
        """Whether a driver allocated for the offer, or declined it."""
        return self.mirror is not None and bool(offer_ended(self.mirror))

    def is_reserved(self, pod: Pod) -> bool:
        """Whether the claim's mirror is reserved for the pod."""
        return self.mirror is not None and pod.metadata.uid in {u.uid for u in self.mirror.status.reserved_for}
