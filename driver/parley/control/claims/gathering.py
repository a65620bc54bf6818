"""Gathers all facts about a pod's claims from caches and ledger, so that decisions need nothing else.

One `PodClaim` per entry of `spec.resourceClaims` that is Parley's. If a claim can't be negotiated now (unknown
class, claim in use, ...), its `problem` says why: a stable code, a message with the remedy, and the topics that
may end it.
"""

from dataclasses import replace
from itertools import islice

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod, PodResourceClaim
from parley.api.models import ResourceClass
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.entries import evaluated, has_too_many, number_of
from parley.control.claims.checks import first_problem
from parley.control.claims.generated import GENERATED, UNGENERATED, GeneratedClaim, UngeneratedClaim
from parley.control.claims.messages import made_from_taken
from parley.control.claims.named import USABLE, NamedClaim
from parley.control.claims.on_demand import made_for_former_owner, on_demand, shared_topic
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.objects.class_request import class_request, of_spec
from parley.control.objects.mirror import is_mirror, is_template_mirror, owner_pod
from parley.control.objects.pod import reference
from parley.control.objects.standin import is_stand_in
from parley.control.state import State
from parley.kube.cache import Key
from parley.negotiation.waiting import Topic
from parley.sdk.checks import too_many_claims


def gather(state: State, pod: Pod) -> tuple[PodClaim, ...]:
    """The pod's claims that are Parley's, in the pod's order; those of other DRA drivers are left out.

    If the pod has too many claims, only the first, with that as its problem; the others are not evaluated.
    """
    found = (_gather_one(state, pod, entry) for entry in evaluated(pod))
    ours = (claim for claim in found if claim is not None)
    if not has_too_many(pod):
        return tuple(ours)
    return tuple(_one_too_many(pod, claim) for claim in islice(ours, 1))


def _one_too_many(pod: Pod, claim: PodClaim) -> PodClaim:
    meta = pod.metadata
    message = too_many_claims(f"{meta.namespace}/{meta.name}", number_of(pod))
    problem = Problem(reasons.PARAMETERS_INVALID, message, (("pod", meta.namespace, meta.name),))
    return PodClaim(claim.entry, claim.name, problem=problem)


def _gather_one(state: State, pod: Pod, entry: PodResourceClaim) -> PodClaim | None:
    if entry.resource_claim_template_name:
        return _generated(state, pod, entry)
    return _named(state, pod, entry) if entry.resource_claim_name else None


def _named(state: State, pod: Pod, entry: PodResourceClaim) -> PodClaim | None:
    cluster, key = state.cluster, (pod.metadata.namespace, entry.resource_claim_name or "")
    claim, mirror = cluster.claim(key), cluster.mirror(key)
    if claim is None or is_stand_in(claim):
        gone = mirror is None or (claim is None and is_mirror(mirror) and owner_pod(mirror) is None)
        return _missing(cluster, pod, entry, key) if gone else None
    holding, class_ = state.ledger.get(claim.metadata.uid), cluster.class_(claim.spec.resource_class_name)
    facts = NamedClaim(state, claim, mirror, class_, holding, pod.metadata.uid, pod.spec.node_name)
    problem = first_problem(USABLE, facts) or _former_owners(cluster, pod, facts)
    if problem is not None:
        return PodClaim(entry.name, key[1], problem=problem)
    found = PodClaim(
        entry.name,
        key[1],
        mirror,
        claim,
        claim,
        class_request=of_spec(claim.spec),
        holding=holding,
        own_writes=cluster.own_writes,
    )
    return with_class(state, found, facts.class_)


def _former_owners(cluster: ClusterCache, pod: Pod, facts: NamedClaim) -> Problem | None:
    """The claim was made on demand for another run than the pod's. Pods that use it already go on."""
    if facts.is_user or facts.runs_with_claim:
        return None
    why = made_for_former_owner(cluster.template, pod, facts.claim)
    if not why:
        return None
    problem = facts.blocked(reasons.CLAIM_BEING_DELETED, why, shared_topic(pod.metadata.namespace))
    return replace(problem, awaits_successor=True)


def _missing(cluster: ClusterCache, pod: Pod, entry: PodResourceClaim, key: Key) -> PodClaim:
    """A named claim that does not exist, and that a template may make on demand."""
    demand = None if cluster.claim(key) else on_demand(cluster.template, pod, key[1])
    topics: tuple[Topic, ...] = (("claim", *key), shared_topic(key[0]))
    if demand is None:
        message = _create_one(f"claim {key[0]}/{key[1]}", "ResourceClaim")
        return PodClaim(entry.name, key[1], problem=Problem(reasons.CLAIM_NOT_FOUND, message, topics))
    if demand.fault:
        return PodClaim(entry.name, key[1], problem=Problem(reasons.CLAIM_NOT_MADE, demand.fault, topics))
    message = f"claim {key[0]}/{key[1]} is being created from template {key[0]}/{demand.template}"
    soon = Problem(reasons.CLAIM_NOT_FOUND, message, topics, transient=True)
    return PodClaim(entry.name, key[1], problem=soon, to_create=demand)


def _create_one(what: str, kind: str) -> str:
    return f"{what} does not exist: create a {kind} of parley.dev (or of resource.k8s.io) with that name"


def _generated(state: State, pod: Pod, entry: PodResourceClaim) -> PodClaim | None:
    cluster, ledger = state.cluster, state.ledger
    mirror = cluster.generated.of_entry(pod, entry.name)
    if mirror is None:
        return _not_generated(cluster, pod, entry)
    if not is_mirror(mirror):
        return _from_taken_template(cluster, pod, entry, mirror)
    key, request = (mirror.metadata.namespace, mirror.metadata.name), class_request(mirror)
    holding, stand_in = ledger.of_entry(reference(pod), entry.name), cluster.claim(key)
    class_ = cluster.class_(request.class_name) if request is not None else None
    facts = GeneratedClaim(
        pod,
        entry.name,
        mirror,
        request,
        class_=class_,
        stand_in=stand_in,
        holding=holding,
        former=ledger.of_claim(*key),
        embedded=class_ is not None and class_.driver_name in state.drivers,
    )
    if (problem := first_problem(GENERATED, facts)) is not None:
        return PodClaim(entry.name, key[1], problem=problem)
    found = PodClaim(
        entry.name,
        key[1],
        mirror,
        written=stand_in,
        class_request=request,
        holding=holding,
        own_writes=cluster.own_writes,
        subject=facts.subject,
    )
    return with_class(state, found, facts.class_)


def _from_taken_template(
    cluster: ClusterCache, pod: Pod, entry: PodResourceClaim, claim: BuiltinClaim
) -> PodClaim | None:
    """A pending claim that Kubernetes generated from a built-in template with the name of Parley's template; None
    if there is no such template of Parley's, or the claim is allocated."""
    key = (pod.metadata.namespace, entry.resource_claim_template_name or "")
    if pod.spec.node_name or claim.status.allocation is not None or cluster.template(key) is None:
        return None
    name = claim.metadata.name
    message = made_from_taken(f"{key[0]}/{name}", entry.name, f"{key[0]}/{key[1]}")
    topics: tuple[Topic, ...] = (("template", *key), ("claim", key[0], name))
    return PodClaim(entry.name, name, problem=Problem(reasons.NAME_TAKEN, message, topics))


def _not_generated(cluster: ClusterCache, pod: Pod, entry: PodResourceClaim) -> PodClaim | None:
    key = (pod.metadata.namespace, entry.resource_claim_template_name or "")
    template, mirror = cluster.template(key), cluster.template_mirror(key)
    if template is None:
        if mirror is not None and not is_template_mirror(mirror):
            return None
        message = _create_one(f"template {key[0]}/{key[1]} of claim {entry.name!r}", "ResourceClaimTemplate")
        return PodClaim(entry.name, "", problem=Problem(reasons.CLAIM_NOT_FOUND, message, (("template", *key),)))
    refusal = cluster.refusals.of("ResourceClaimTemplate", key)
    listed = cluster.generated.listed(pod, entry.name)
    lost = listed if cluster.mirror((key[0], listed)) is None else ""
    problem = first_problem(UNGENERATED, UngeneratedClaim(pod, template, mirror, refusal, entry.name, lost))
    return PodClaim(entry.name, "", problem=problem)


def with_class(state: State, claim: PodClaim, class_: ResourceClass | None) -> PodClaim:
    """The claim with its class, unless it is allocated and needs none. Checks have found the class to exist."""
    if claim.holding is not None:
        return claim
    assert class_ is not None
    return replace(claim, class_=class_, standalone=class_.driver_name not in state.drivers)
