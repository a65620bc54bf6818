"""Brings together all that is known about a pod's claims, so that decisions need to look nowhere else.

One `PodClaim` per entry of `spec.resourceClaims` that is Parley's. What stands in the way of a claim (unknown
class, claim in use, ...) is its `problem`: a stable code, a sentence with the remedy, and what would change it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod, PodResourceClaim
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.names import CONDITION_ALLOCATED, CONDITION_ALLOCATING, CONDITION_RELEASING
from parley.control.cluster import Cluster, reference
from parley.control.ledger import Holding, Ledger
from parley.control.mirror import (
    MAX_PARAMETERS_BYTES,
    MAX_USERS,
    Asked,
    asked,
    driver_of,
    is_mirror,
    is_offer,
    is_shareable,
    nodes_of,
    offer_ended,
    offer_stands,
    owned_by,
    parameters_too_large,
)
from parley.control.receipts import waits_for
from parley.control.standin import is_stand_in
from parley.negotiation.states import ClaimState
from parley.sdk import PodReference

Topic = tuple[str, ...]
"""Something whose change wakes waiting pods: ("class", NAME), ("claim", NAMESPACE, NAME), ("driver", NAME), ..."""

NODES: Topic = ("nodes",)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a claim can't be negotiated now."""

    code: str
    message: str
    topics: tuple[Topic, ...]
    transient: bool = False
    """Whether it ends by itself within moments, so that nobody need be told."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One of the pod's claims. `mirror` is None only if there is a problem.

    `claim` is the Parley claim of a named one. `outside` is set if a driver outside of the controller is to
    allocate: it writes into `written`, the named claim or the stand-in of a generated one.
    """

    entry: str
    name: str
    mirror: BuiltinClaim | None = None
    claim: ResourceClaim | None = None
    written: ResourceClaim | None = None
    outside: bool = False
    class_: ResourceClass | None = None
    asked: Asked | None = None
    holding: Holding | None = None
    problem: Problem | None = None

    @property
    def uid(self) -> str:
        """The key towards driver and ledger."""
        if self.holding is not None:
            return self.holding.uid
        if self.claim is not None:
            return self.claim.metadata.uid
        assert self.mirror is not None
        return self.mirror.metadata.uid

    @property
    def class_name(self) -> str:
        """The class that the claim asks for."""
        return self.asked.class_name if self.asked is not None else ""

    def state(self, pod: Pod) -> ClaimState:
        """Where the claim stands for the pod, from the ledger and the mirror as the cache has it."""
        assert self.mirror is not None
        allocation, holding = self.mirror.status.allocation, self.holding
        if holding is None and allocation is None:
            return ClaimState.PENDING
        if holding is None:
            return ClaimState.OFFERED if offer_stands(self.mirror) else ClaimState.UNKNOWN
        if self.version < holding.version:
            return ClaimState.STALE
        if pod.metadata.uid not in holding.pods:
            return ClaimState.JOINABLE
        if pod.spec.node_name and not holding.reaches(pod.spec.node_name) and len(holding.pods) == 1:
            return ClaimState.MISPLACED
        if allocation is not None and not pod.spec.node_name and is_offer(allocation) != holding.offered:
            return ClaimState.MISPLACED
        if allocation is None:
            return ClaimState.CLEARED if holding.version else ClaimState.UNWRITTEN
        return ClaimState.ALLOCATED if self._recorded(pod, holding) else ClaimState.UNWRITTEN

    def _recorded(self, pod: Pod, holding: Holding) -> bool:
        assert self.mirror is not None
        if holding.offered and offer_ended(self.mirror) != CONDITION_ALLOCATED:
            return False
        return self.is_reserved(pod)

    @property
    def version(self) -> int:
        """The mirror's resourceVersion in the cache, 0 without a mirror."""
        return int(self.mirror.metadata.resource_version or 0) if self.mirror is not None else 0

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
        """Whether the API shows that the pod may use the claim."""
        return self.mirror is not None and pod.metadata.uid in {u.uid for u in self.mirror.status.reserved_for}


def gather(cluster: Cluster, ledger: Ledger, drivers: Mapping[str, object], pod: Pod) -> tuple[PodClaim, ...]:
    """The pod's claims that are Parley's, in the pod's order; those of other DRA drivers are left out."""
    found = (_gather_one(cluster, ledger, drivers, pod, entry) for entry in pod.spec.resource_claims)
    return tuple(claim for claim in found if claim is not None)


def _gather_one(
    cluster: Cluster, ledger: Ledger, drivers: Mapping[str, object], pod: Pod, entry: PodResourceClaim
) -> PodClaim | None:
    if entry.resource_claim_template_name:
        found = _generated(cluster, ledger, pod, entry)
    elif entry.resource_claim_name:
        found = _named(cluster, ledger, drivers, pod, entry)
    else:
        return None
    if found is None or found.problem is not None or found.holding is not None:
        return found
    return _with_class(cluster, drivers, found)


def _generated(cluster: Cluster, ledger: Ledger, pod: Pod, entry: PodResourceClaim) -> PodClaim | None:
    namespace, template = pod.metadata.namespace, entry.resource_claim_template_name or ""
    mirror = cluster.generated(pod, entry.name)
    if mirror is None:
        return _not_generated(cluster, namespace, template, entry.name)
    if not is_mirror(mirror):
        return None
    if mirror.metadata.deletion_timestamp and not pod.spec.node_name:
        return _soon(entry.name, f"the claim for {entry.name!r} was deleted and is being made anew")
    holding = ledger.of_entry(reference(pod), entry.name)
    stand_in = cluster.claim((namespace, mirror.metadata.name))
    if (left := ledger.of_claim(namespace, mirror.metadata.name)) is not None and left.leaving:
        return _soon(entry.name, f"claim {namespace}/{mirror.metadata.name} is being given back")
    if stand_in is not None and holding is None and being_given_back(stand_in):
        return _soon(entry.name, f"claim {namespace}/{mirror.metadata.name} is being given back")
    request = asked(mirror)
    if request is None:
        return _problem(
            entry.name,
            mirror.metadata.name,
            reasons.NAME_TAKEN,
            f"claim {namespace}/{mirror.metadata.name} names Parley's DeviceClass but was not made by Parley: "
            f"make it from a parley.dev ResourceClaimTemplate",
            ("claim", namespace, mirror.metadata.name),
        )
    return PodClaim(entry.name, mirror.metadata.name, mirror, written=stand_in, asked=request, holding=holding)


def _not_generated(cluster: Cluster, namespace: str, template: str, entry: str) -> PodClaim | None:
    ours = cluster.template((namespace, template))
    builtin = cluster.template_mirror((namespace, template))
    topic = ("template", namespace, template)
    if ours is None and builtin is None:
        message = (
            f"template {namespace}/{template} of claim {entry!r} does not exist: "
            f"create a ResourceClaimTemplate of parley.dev (or of resource.k8s.io) with that name"
        )
        return _problem(entry, "", reasons.CLAIM_NOT_FOUND, message, topic)
    if ours is None:
        return None
    if builtin is not None and not owned_by(builtin, ours.metadata.uid):
        message = name_taken("ResourceClaimTemplate", namespace, template)
        return _problem(entry, "", reasons.NAME_TAKEN, message, topic)
    if size := parameters_too_large(ours.spec.spec):
        return _problem(
            entry, "", reasons.PARAMETERS_INVALID, too_large(f"template {namespace}/{template}", size), topic
        )
    return _soon(entry, f"the claim for {entry!r} is being made from template {namespace}/{template}")


def _soon(entry: str, message: str, *topics: Topic) -> PodClaim:
    return PodClaim(entry, "", problem=Problem(reasons.CLAIM_NOT_FOUND, message, topics, transient=True))


def name_taken(kind: str, namespace: str, name: str) -> str:
    """The sentence about a built-in object in the mirror's place."""
    return (
        f"a resource.k8s.io {kind} {namespace}/{name} exists that Parley did not make: "
        f"delete it, or give the parley.dev {kind} another name"
    )


def _named(
    cluster: Cluster, ledger: Ledger, drivers: Mapping[str, object], pod: Pod, entry: PodResourceClaim
) -> PodClaim | None:
    namespace, name = pod.metadata.namespace, entry.resource_claim_name or ""
    claim, mirror = cluster.claim((namespace, name)), cluster.mirror((namespace, name))
    topic = ("claim", namespace, name)
    if claim is None or is_stand_in(claim):
        if mirror is not None:
            return None
        message = (
            f"claim {namespace}/{name} does not exist: "
            f"create a ResourceClaim of parley.dev (or of resource.k8s.io) with that name"
        )
        return _problem(entry.name, name, reasons.CLAIM_NOT_FOUND, message, topic)
    holding = ledger.get(claim.metadata.uid)
    if mirror is None and mirror_follows(cluster, claim):
        return _soon(entry.name, f"the built-in claim {namespace}/{name} is being made", topic)
    if holding is not None and holding.releasing:
        return _problem(entry.name, name, reasons.RELEASING, _releasing(claim, holding), topic)
    if holding.leaving if holding is not None else being_given_back(claim):
        return _soon(entry.name, f"claim {namespace}/{name} is being given back", topic)
    mine = holding is not None and pod.metadata.uid in holding.pods
    if mirror is not None and holding is None and is_outdated(cluster, claim, mirror):
        return _soon(entry.name, f"the built-in claim {namespace}/{name} is being made anew for its class", topic)
    if mirror is not None and mirror.metadata.deletion_timestamp and not mine:
        return _soon(
            entry.name, f"the built-in claim {namespace}/{name} was deleted and is being made anew", topic
        )
    if problem := _named_problem(pod, claim, mirror, holding, ledger.expected_for(namespace, name)):
        code, message = problem
        return _problem(entry.name, name, code, message, topic)
    if claim.spec.allocation_mode == "Immediate" and not mine and not (holding and claim.status.allocation):
        return PodClaim(entry.name, name, problem=_unallocated(cluster, drivers, claim, topic))
    request = Asked(claim.spec.resource_class_name, claim.spec.parameters)
    return PodClaim(entry.name, name, mirror, claim, claim, asked=request, holding=holding)


def _releasing(claim: ResourceClaim, holding: Holding) -> str:
    since = [c.last_transition_time for c in claim.status.conditions if c.type == CONDITION_RELEASING]
    words = waits_for(holding.owed[0]) if holding.owed else "it is being given back"
    when = f" (since {since[0]})" if since else ""
    return f"claim {claim.metadata.namespace}/{claim.metadata.name} is not free yet{when}: {words}"


def being_given_back(claim: ResourceClaim) -> bool:
    """Whether what the claim's record shows is on its way out; nothing is allocated before it is gone."""
    return claim.status.allocation is not None or bool(claim.metadata.deletion_timestamp and is_stand_in(claim))


def is_outdated(cluster: Cluster, claim: ResourceClaim, mirror: BuiltinClaim) -> bool:
    """Whether the mirror of an unused claim is not what its class asks for any more: exclusive, or shareable."""
    class_ = cluster.class_(claim.spec.resource_class_name)
    if class_ is None or not is_mirror(mirror) or not owned_by(mirror, claim.metadata.uid):
        return False
    return is_shareable(mirror) != class_.shareable and mirror.status.allocation is None


def mirror_follows(cluster: Cluster, claim: ResourceClaim) -> bool:
    """Whether a mirror is made for a named claim: not before its class tells whether it is shareable."""
    if claim.metadata.deletion_timestamp:
        return False
    return cluster.class_(claim.spec.resource_class_name) is not None and not parameters_too_large(claim.spec)


def _named_problem(
    pod: Pod,
    claim: ResourceClaim,
    mirror: BuiltinClaim | None,
    holding: Holding | None,
    expected: PodReference | None,
) -> tuple[str, str] | None:
    full = f"{claim.metadata.namespace}/{claim.metadata.name}"
    mine = holding is not None and pod.metadata.uid in holding.pods
    if expected is not None and expected.uid != pod.metadata.uid and not mine:
        whom = f"pod {expected.namespace}/{expected.name}"
        return reasons.CLAIM_IN_USE, f"claim {full} is being allocated for {whom}: wait until that is done"
    if claim.metadata.deletion_timestamp and not mine:
        return reasons.CLAIM_BEING_DELETED, f"claim {full} is being deleted: name another one"
    if size := parameters_too_large(claim.spec):
        return reasons.PARAMETERS_INVALID, too_large(f"claim {full}", size)
    if mirror is None:
        return reasons.CLASS_NOT_FOUND, class_not_found(claim.spec.resource_class_name, full)
    if not is_mirror(mirror) or not owned_by(mirror, claim.metadata.uid):
        return reasons.NAME_TAKEN, name_taken("ResourceClaim", claim.metadata.namespace, claim.metadata.name)
    if holding is not None and holding.pods and not mine and not holding.shareable:
        user = next(iter(holding.pods.values()))
        return (
            reasons.CLAIM_IN_USE,
            f"claim {full} is not shareable and pod {user.namespace}/{user.name} uses it: "
            "wait until that ends, or use a template",
        )
    users = {*(holding.pods if holding is not None else ()), *(user.uid for user in mirror.status.reserved_for)}
    if len(users) >= MAX_USERS and pod.metadata.uid not in users:
        return (
            reasons.CLAIM_FULL,
            f"{MAX_USERS} pods use claim {full}, which is the most that Kubernetes allows: "
            "wait until one of them ends, or make another claim for some of them",
        )
    return None


def _unallocated(cluster: Cluster, drivers: Mapping[str, object], claim: ResourceClaim, topic: Topic) -> Problem:
    """About an immediate claim: whoever allocates it says in a condition how far that is."""
    title = f"claim {claim.metadata.namespace}/{claim.metadata.name} is not allocated yet"
    types = (reasons.ALLOCATED, CONDITION_ALLOCATING)
    said = [c for c in claim.status.conditions if c.type in types and c.message]
    class_ = cluster.class_(claim.spec.resource_class_name)
    driver = class_.driver_name if class_ is not None else ""
    soon = not said and driver in drivers
    words = said[0].message if said else f"driver {driver} has yet to allocate it, without a pod"
    return Problem(reasons.CLAIM_PENDING, f"{title}: {words}", (topic,), transient=soon)


def too_large(whose: str, size: int) -> str:
    """The sentence about parameters that don't fit into a mirror."""
    return f"parameters of {whose} have {size} bytes as JSON, at most {MAX_PARAMETERS_BYTES} fit: shorten them"


def class_not_found(class_name: str, claim: str) -> str:
    """The sentence about a missing class."""
    return f"claim {claim}: spec.resourceClassName={class_name!r} does not exist: create that ResourceClass"


def _with_class(cluster: Cluster, drivers: Mapping[str, object], found: PodClaim) -> PodClaim:
    assert found.asked is not None
    assert found.mirror is not None
    class_name = found.asked.class_name
    full = f"{found.mirror.metadata.namespace}/{found.name}"
    class_ = cluster.class_(class_name)
    topic = ("class", class_name)
    if class_ is None:
        return _problem(found.entry, found.name, reasons.CLASS_NOT_FOUND, class_not_found(class_name, full), topic)
    return replace(found, class_=class_, outside=class_.driver_name not in drivers)


def _problem(entry: str, name: str, code: str, message: str, *topics: Topic) -> PodClaim:
    return PodClaim(entry, name, problem=Problem(code, message, topics))
