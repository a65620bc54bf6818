"""Named claims as a pod finds them: who may use one now, and what is in the way of the others. Pure.

The order of those who wait is kept elsewhere (`negotiation.waiting`); here a claim is free, or it is not.
"""

from collections.abc import Mapping

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod, PodResourceClaim
from parley.api.models import ResourceClaim
from parley.api.names import CONDITION_ALLOCATING, CONDITION_RELEASING
from parley.control.cluster import Cluster
from parley.control.ledger import Holding, Phase
from parley.control.mirror import MAX_USERS, ClassRequest, is_mirror, is_shareable, owned_by, parameters_too_large
from parley.control.podclaims import PodClaim, Problem, Topic, blocked, soon
from parley.control.receipts import waits_for
from parley.control.sentences import class_not_found, mirror_refused, name_taken, too_large
from parley.control.standin import being_given_back, is_stand_in
from parley.control.state import State
from parley.sdk import PodReference


def named(state: State, pod: Pod, entry: PodResourceClaim) -> PodClaim | None:
    """What the pod's entry names; None if it is a claim of other DRA drivers."""
    namespace, name = pod.metadata.namespace, entry.resource_claim_name or ""
    claim, mirror = state.cluster.claim((namespace, name)), state.cluster.mirror((namespace, name))
    topic = ("claim", namespace, name)
    if claim is None or is_stand_in(claim):
        if mirror is not None:
            return None
        message = (
            f"claim {namespace}/{name} does not exist: "
            f"create a ResourceClaim of parley.dev (or of resource.k8s.io) with that name"
        )
        return blocked(entry.name, name, reasons.CLAIM_NOT_FOUND, message, topic)
    holding = state.ledger.get(claim.metadata.uid)
    if mirror is None and (words := state.cluster.refusals.of("ResourceClaim", (namespace, name))):
        message = mirror_refused("ResourceClaim", namespace, name, words)
        return blocked(entry.name, name, reasons.WRITE_REFUSED, message, topic)
    if mirror is None and mirror_follows(state.cluster, claim):
        return soon(entry.name, f"the built-in claim {namespace}/{name} is being made", topic)
    told = not state.cluster.own_writes.unseen(claim.metadata)
    if holding is not None and holding.phase is Phase.RELEASING and told:
        return blocked(entry.name, name, reasons.RELEASING, _releasing(claim, holding), topic)
    if not holding.joinable if holding is not None else being_given_back(claim):
        return soon(entry.name, f"claim {namespace}/{name} is being given back", topic)
    mine = holding is not None and pod.metadata.uid in holding.pods
    if mirror is not None and holding is None and is_outdated(state.cluster, claim, mirror):
        return soon(entry.name, f"the built-in claim {namespace}/{name} is being made anew for its class", topic)
    if mirror is not None and mirror.metadata.deletion_timestamp and not mine:
        return soon(entry.name, f"the built-in claim {namespace}/{name} was deleted and is being made anew", topic)
    if problem := _named_problem(pod, claim, mirror, holding, state.ledger.expected_for(namespace, name)):
        code, message = problem
        return blocked(entry.name, name, code, message, topic)
    if claim.spec.allocation_mode == "Immediate" and not mine and not (holding and claim.status.allocation):
        return PodClaim(entry.name, name, problem=_unallocated(state.cluster, state.drivers, claim, topic))
    request = ClassRequest(claim.spec.resource_class_name, claim.spec.parameters)
    return PodClaim(
        entry.name, name, mirror, claim, claim, asked=request, holding=holding, own_writes=state.cluster.own_writes
    )


def _releasing(claim: ResourceClaim, holding: Holding) -> str:
    since = [c.last_transition_time for c in claim.status.conditions if c.type == CONDITION_RELEASING]
    words = waits_for(holding.owing_nodes) if holding.owed else "it is being given back"
    when = f" (since {since[0]})" if since else ""
    return f"claim {claim.metadata.namespace}/{claim.metadata.name} is not free yet{when}: {words}"


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
