"""Checks of named claims: why a pod can't use one now, and why its condition `Accepted` is false. Pure.

The order of waiting pods is not decided here (`negotiation.waiting`), only whether a claim is free.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from parley.api import reasons
from parley.api.builtin import BuiltinClaim
from parley.api.meta import Condition
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.names import CONDITION_ALLOCATING, CONDITION_FAILED, CONDITION_RELEASING, FINALIZER
from parley.api.wording import listed, noun_for
from parley.control.claims.checks import Check
from parley.control.claims.messages import (
    being_allocated,
    class_not_found,
    not_deallocated,
    refused,
    taken,
    too_large,
)
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.decision.demand import demand_of
from parley.control.holding import Holding, Phase, Written
from parley.control.limits import counts_when_accepted
from parley.control.limits import topic as limit_topic
from parley.control.objects.class_request import of_spec, parameters_too_large
from parley.control.objects.mirror import MAX_USERS, is_mirror, is_shareable, owned_by, stands_for_another
from parley.control.objects.standin import being_deallocated
from parley.control.release.receipts import waits_for
from parley.control.state import State
from parley.negotiation.waiting import Topic
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.immediate import is_pending, no_pod
from parley.sdk.recorded import driver_of_record, must_be_deallocated
from parley.sdk.referenced import ParametersUnavailable


@dataclass(frozen=True, slots=True)
class NamedClaim:
    """The facts about a named claim that decide whether a pod may use it now. Without a pod `pod_uid` is "", and
    there is no `holding`. `node` is the node that the pod is bound to, or ""."""

    state: State
    claim: ResourceClaim
    mirror: BuiltinClaim | None
    class_: ResourceClass | None
    holding: Holding | None = None
    pod_uid: str = ""
    node: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.claim.metadata.namespace, self.claim.metadata.name

    @property
    def path(self) -> str:
        """The claim's name in messages, NAMESPACE/NAME."""
        return "/".join(self.key)

    @property
    def topic(self) -> Topic:
        """The topic that wakes pods waiting for the claim."""
        return ("claim", *self.key)

    @property
    def is_user(self) -> bool:
        """Whether the pod uses the claim already."""
        return self.holding is not None and self.pod_uid in self.holding.pods

    @property
    def runs_with_claim(self) -> bool:
        """Whether the pod's scheduler bound it to a node where the shareable claim is allocated: it runs with it,
        even if the ledger does not have it as a user."""
        holding = self.holding
        return bool(self.node) and holding is not None and holding.shareable and holding.may_run_on(self.node)

    def blocked(self, code: str, message: str, *topics: Topic) -> Problem:
        """A problem that a change of the claim may end, or of one of the other topics."""
        return Problem(code, message, (self.topic, *topics))

    def transient(self, message: str) -> Problem:
        """A problem that ends by itself within moments, or when the class changes back before that."""
        topics = (self.topic, ("class", self.claim.spec.resource_class_name))
        return Problem(reasons.CLAIM_NOT_FOUND, message, topics, transient=True)


def being_deleted(facts: NamedClaim) -> Problem | None:
    """The claim is being deleted. A pod that uses it keeps it, unless its standalone driver takes it back: the
    pod's use is not recorded yet."""
    holding = facts.holding
    taken_back = holding is not None and holding.standalone and must_be_deallocated(facts.claim) and not facts.node
    stays = facts.mirror is not None and ((facts.is_user and not taken_back) or facts.runs_with_claim)
    if not facts.claim.metadata.deletion_timestamp or stays:
        return None
    message = f"claim {facts.path} is being deleted: recreate it once it is gone, or the pod with another claim"
    return facts.blocked(reasons.CLAIM_BEING_DELETED, message)


def mirror_refused(facts: NamedClaim) -> Problem | None:
    """The API server refused the claim's mirror."""
    why = facts.state.cluster.refusals.of("ResourceClaim", facts.key)
    if facts.mirror is not None or not why:
        return None
    return facts.blocked(reasons.WRITE_REFUSED, refused("ResourceClaim", *facts.key, why))


def mirror_missing(facts: NamedClaim) -> Problem | None:
    """The claim's mirror is about to be created."""
    if facts.mirror is not None or not has_mirror(facts.claim, facts.class_):
        return None
    return facts.transient(f"the built-in claim {facts.path} is being created")


def releasing(facts: NamedClaim) -> Problem | None:
    """Nodes may still have the claim prepared for pods that were deleted by force, or have data to remove; or its
    driver fails to deallocate it."""
    claim, holding = facts.claim, facts.holding
    if holding is not None and holding.phase is Phase.ENDING:
        return facts.blocked(reasons.DRIVER_FAILED, not_deallocated(f"claim {facts.path}", holding.driver))
    if holding is None or holding.phase is not Phase.RELEASING:
        return None
    if facts.state.cluster.own_writes.is_stale(claim.metadata):
        return None  # the condition, which says since when, is not in the cache yet
    since = [c.last_transition_time for c in claim.status.conditions if c.type == CONDITION_RELEASING]
    why = waits_for(holding) if holding.owed else "it is being released"
    when = f" (since {since[0]})" if since else ""
    return facts.blocked(reasons.RELEASING, f"claim {facts.path} is not free yet{when}: {why}")


def former_in_use(facts: NamedClaim) -> Problem | None:
    """A pod still uses an earlier claim of the name, whose object was removed by force. What a standalone driver
    allocates for this one is taken over only after that (`restoring.adopt_record`)."""
    claim, former = facts.claim, facts.state.ledger.of_claim(*facts.key)
    driver = driver_of_record(claim) or (facts.class_.driver_name if facts.class_ is not None else "")
    if former is None or former.uid == claim.metadata.uid or not former.pods or driver in facts.state.drivers:
        return None
    user = next(iter(former.pods.values()))
    message = (
        f"claim {facts.path} is not the one that pod {user.namespace}/{user.name} runs with, which was removed: "
        "wait until that pod has ended, or use another name"
    )
    return facts.blocked(reasons.CLAIM_BEING_DELETED, message)


def being_released(facts: NamedClaim) -> Problem | None:
    """The claim's allocation is being released."""
    holding = facts.holding
    if holding.joinable if holding is not None else not being_deallocated(facts.claim):
        return None
    return facts.transient(f"claim {facts.path} is being released")


def mirror_outdated(facts: NamedClaim) -> Problem | None:
    """The class was changed between shareable and exclusive since the mirror was created. A bound pod keeps what
    was allocated for it."""
    if facts.mirror is None or (facts.is_user and facts.node):
        return None
    if not is_outdated(facts.claim, facts.mirror, facts.class_, facts.holding):
        return None
    return facts.transient(f"the built-in claim {facts.path} is being recreated for its class")


def mirror_deleted(facts: NamedClaim) -> Problem | None:
    """The claim's mirror is being deleted, and will be recreated: at once, or when no pod uses it any more."""
    if facts.mirror is None or not facts.mirror.metadata.deletion_timestamp or facts.is_user:
        return None
    if facts.holding is not None and facts.holding.pods and not facts.runs_with_claim:
        users = [f"{pod.namespace}/{pod.name}" for pod in facts.holding.pods.values()]
        message = (
            f"the built-in claim {facts.path} was deleted while {noun_for(len(users), 'pod')} {listed(users, 3)} "
            f"{'uses' if len(users) == 1 else 'use'} it, and is recreated after that: wait, or use another claim"
        )
        return facts.blocked(reasons.CLAIM_IN_USE, message)
    return facts.transient(f"the built-in claim {facts.path} was deleted and is being recreated")


def allocating_for_another(facts: NamedClaim) -> Problem | None:
    """A standalone driver is allocating the claim for another pod, which does not use it yet."""
    expected, holding = facts.state.ledger.expected_for(*facts.key), facts.holding
    if expected is None or expected.uid == facts.pod_uid or facts.is_user:
        return None
    if holding is not None and expected.uid in holding.pods:
        return None  # it is allocated, and that pod is about to be bound
    whom = f"pod {expected.namespace}/{expected.name}"
    message = being_allocated(*facts.key, whom)
    return facts.blocked(reasons.CLAIM_IN_USE, message)


def failed(facts: NamedClaim) -> Problem | None:
    """The claim has failed with its node, as its class says. Pods that use it already go on."""
    found = failure_of(facts.claim)
    if found is None or facts.is_user or facts.runs_with_claim:
        return None
    problem = facts.blocked(reasons.CLAIM_FAILED, f"claim {facts.path} has failed: {found.message}")
    return replace(problem, fails_pod=facts.class_ is not None and facts.class_.on_permanent_error == "FailPod")


def oversized(facts: NamedClaim) -> Problem | None:
    """The claim's parameters don't fit into a mirror."""
    size = parameters_too_large(facts.claim.spec)
    return facts.blocked(reasons.PARAMETERS_INVALID, too_large(f"claim {facts.path}", size)) if size else None


def class_missing(facts: NamedClaim) -> Problem | None:
    """The claim's class does not exist. A claim that is allocated does not need it."""
    if facts.class_ is not None or (facts.mirror is not None and facts.holding is not None):
        return None
    name = facts.claim.spec.resource_class_name
    return facts.blocked(reasons.CLASS_NOT_FOUND, class_not_found(name, f"claim {facts.path}"), ("class", name))


def name_taken(facts: NamedClaim) -> Problem | None:
    """The built-in claim with the claim's name is not its mirror."""
    mirror = facts.mirror
    if mirror is None or mirrors(facts.claim, mirror):
        return None
    if is_of_predecessor(facts.claim, mirror):
        message = f"the built-in claim of an earlier claim {facts.path} is being deleted: wait until it is gone"
        return facts.blocked(reasons.CLAIM_BEING_DELETED, message)
    return facts.blocked(reasons.NAME_TAKEN, taken("ResourceClaim", *facts.key))


def in_use(facts: NamedClaim) -> Problem | None:
    """The claim is exclusive, and another pod uses it."""
    holding = facts.holding
    if holding is None or not holding.pods or facts.is_user or holding.shareable:
        return None
    user = next(iter(holding.pods.values()))
    message = (
        f"claim {facts.path} is not shareable and pod {user.namespace}/{user.name} uses it: "
        "wait until that ends, or use a template"
    )
    return facts.blocked(reasons.CLAIM_IN_USE, message)


def full(facts: NamedClaim) -> Problem | None:
    """As many pods use the claim as the API can list."""
    users = set(facts.holding.pods if facts.holding is not None else ())
    if facts.mirror is not None:
        users.update(user.uid for user in facts.mirror.status.reserved_for)
    if len(users) < MAX_USERS or facts.pod_uid in users:
        return None
    message = (
        f"{MAX_USERS} pods use claim {facts.path}, which is the most that Kubernetes allows: "
        "wait until one of them ends, or create another claim for some of them"
    )
    return facts.blocked(reasons.CLAIM_FULL, message)


def not_allocated(facts: NamedClaim) -> Problem | None:
    """The claim is an immediate one, and not allocated yet. The message is that of its condition."""
    claim, holding = facts.claim, facts.holding
    if claim.spec.allocation_mode != "Immediate" or facts.is_user or (holding and claim.status.allocation):
        return None
    types = (reasons.ALLOCATED, CONDITION_ALLOCATING)
    uninformative = (reasons.CLAIM_PENDING, reasons.ALLOCATED)
    conditions = [c for c in claim.status.conditions if c.type in types and c.reason not in uninformative]
    shown = [c for c in conditions if c.message]
    driver = facts.class_.driver_name if facts.class_ is not None else ""
    why = shown[0].message if shown else f"driver {driver} has yet to allocate it, without a pod"
    message = f"claim {facts.path} is not allocated yet: {why}"
    transient = not shown and driver in facts.state.drivers
    return Problem(reasons.CLAIM_PENDING, message, (facts.topic,), transient=transient)


def parameters_not_understood(facts: NamedClaim) -> Problem | None:
    """The claim's embedded driver rejects its parameters, or fails with them, or they can't be read."""
    class_, claim = facts.class_, facts.claim
    if class_ is None or class_.driver_name not in facts.state.drivers:
        return None
    nobody = no_pod(claim.metadata.namespace)
    try:
        demand_of(facts.state.drivers, nobody, (without_pod(claim, class_),))
    except BadParameters as error:
        return facts.blocked(reasons.PARAMETERS_INVALID, str(error))
    except ParametersUnavailable as error:
        return Problem(error.code, str(error), (facts.topic, error.topic), transient=error.transient)
    except DriverFault as fault:
        return facts.blocked(reasons.DRIVER_FAILED, str(fault))
    return None


def limit_reached(facts: NamedClaim) -> Problem | None:
    """A standalone driver is to allocate the claim without a pod, which the class's limits do not allow now."""
    class_, meta = facts.class_, facts.claim.metadata
    if class_ is None or not is_pending(facts.claim) or not counts_when_accepted(class_, facts.state.drivers):
        return None
    message = facts.state.ledger.limits.excess(class_, meta.namespace, {meta.uid: 1})
    topics = (limit_topic(class_.metadata.name, meta.namespace), ("class", class_.metadata.name))
    return facts.blocked(reasons.LIMIT_REACHED, message, *topics) if message else None


ACCEPTED: Sequence[Check[NamedClaim]] = (
    oversized,
    class_missing,
    name_taken,
    mirror_refused,
    parameters_not_understood,
    limit_reached,
)
"""Checks that decide the condition `Accepted` of a named claim."""

USABLE: Sequence[Check[NamedClaim]] = (
    being_deleted,
    mirror_refused,
    mirror_missing,
    releasing,
    former_in_use,
    being_released,
    mirror_outdated,
    mirror_deleted,
    allocating_for_another,
    failed,
    oversized,
    class_missing,
    name_taken,
    in_use,
    full,
    not_allocated,
)
"""Checks that must pass before a pod's use of a named claim can be negotiated."""


def failure_of(claim: ResourceClaim) -> Condition | None:
    """The claim's condition `Failed` if it is true: no pod may use the claim any more. None otherwise."""
    found = (c for c in claim.status.conditions if c.type == CONDITION_FAILED and c.status == "True")
    return next(found, None)


def mirrors(claim: ResourceClaim, mirror: BuiltinClaim) -> bool:
    """Whether the built-in claim is the one that Parley made for the named claim."""
    return is_mirror(mirror) and owned_by(mirror, claim.metadata.uid)


def is_of_predecessor(claim: ResourceClaim, mirror: BuiltinClaim) -> bool:
    """Whether Parley made the built-in claim for an earlier claim of the same name: it is deleted with that."""
    return is_mirror(mirror) and (stands_for_another(mirror, claim.metadata.uid) or was_orphaned(mirror))


def was_orphaned(mirror: BuiltinClaim) -> bool:
    """Whether the mirror's named claim was deleted with `--cascade=orphan`: the garbage collector leaves the
    mirror, and would so keep its name from the next claim."""
    return FINALIZER in mirror.metadata.finalizers and not mirror.metadata.owner_references


def has_mirror(claim: ResourceClaim, class_: ResourceClass | None) -> bool:
    """Whether a named claim gets a mirror: not before its class exists, which decides about sharing."""
    is_deleted = bool(claim.metadata.deletion_timestamp)
    return not is_deleted and class_ is not None and not parameters_too_large(claim.spec)


def is_outdated(
    claim: ResourceClaim, mirror: BuiltinClaim, class_: ResourceClass | None, holding: Holding | None = None
) -> bool:
    """Whether the mirror is exclusive and its claim shareable by now, or the other way round. Never if it may show
    the allocation, nor if a standalone driver allocated for a pod: that driver may never record what the class
    says."""
    if class_ is None or not mirrors(claim, mirror) or mirror.status.allocation is not None:
        return False
    if holding is not None and (
        holding.written is not Written.NO or (holding.standalone and not holding.immediate)
    ):
        return False
    return is_shareable(mirror) != is_shared(claim, class_, holding)


def is_shared(claim: ResourceClaim, class_: ResourceClass, holding: Holding | None = None) -> bool:
    """Whether several pods may use the claim: as held or recorded if it is allocated, otherwise as its class says
    now."""
    if holding is not None:
        return holding.shareable
    allocation = claim.status.allocation
    return allocation.shareable if allocation is not None else class_.shareable


def without_pod(claim: ResourceClaim, class_: ResourceClass) -> PodClaim:
    """A named claim as a `PodClaim`, without a pod."""
    name = claim.metadata.name
    return PodClaim(name, name, claim=claim, class_=class_, class_request=of_spec(claim.spec))
