"""Brings together all that is known about a pod's claims, so that decisions need to look nowhere else.

One `PodClaim` per entry of `spec.resourceClaims` that is Parley's. What stands in the way of a claim (unknown
class, claim in use, ...) is its `problem`: a stable code, a sentence with the remedy, and what would change it.
"""

from collections.abc import Mapping
from dataclasses import replace

from parley.api import reasons
from parley.api.builtin import Pod, PodResourceClaim
from parley.control.cluster import Cluster, reference
from parley.control.ledger import Ledger
from parley.control.mirror import asked, is_mirror, owned_by, parameters_too_large, unreadable
from parley.control.named import named
from parley.control.podclaims import PodClaim, blocked, soon
from parley.control.sentences import class_not_found, mirror_refused, name_taken, stand_in_taken, too_large
from parley.control.standin import being_given_back, stands_for
from parley.control.state import State
from parley.sdk.checks import parameters_unreadable


def gather(state: State, pod: Pod) -> tuple[PodClaim, ...]:
    """The pod's claims that are Parley's, in the pod's order; those of other DRA drivers are left out."""
    found = (_gather_one(state, pod, entry) for entry in pod.spec.resource_claims)
    return tuple(claim for claim in found if claim is not None)


def _gather_one(state: State, pod: Pod, entry: PodResourceClaim) -> PodClaim | None:
    if entry.resource_claim_template_name:
        found = _generated(state.cluster, state.ledger, pod, entry)
    elif entry.resource_claim_name:
        found = named(state, pod, entry)
    else:
        return None
    if found is None or found.problem is not None or found.holding is not None:
        return found
    return with_class(state.cluster, state.drivers, found)


def _generated(cluster: Cluster, ledger: Ledger, pod: Pod, entry: PodResourceClaim) -> PodClaim | None:
    namespace, template = pod.metadata.namespace, entry.resource_claim_template_name or ""
    mirror = cluster.generated(pod, entry.name)
    if mirror is None:
        return _not_generated(cluster, namespace, template, entry.name)
    if not is_mirror(mirror):
        return None
    if mirror.metadata.deletion_timestamp and not pod.spec.node_name:
        return soon(entry.name, f"the claim for {entry.name!r} was deleted and is being made anew")
    holding = ledger.of_entry(reference(pod), entry.name)
    stand_in = cluster.claim((namespace, mirror.metadata.name))
    left = ledger.of_claim(namespace, mirror.metadata.name)
    if left is not None and not left.joinable:
        return soon(entry.name, f"claim {namespace}/{mirror.metadata.name} is being given back")
    if stand_in is not None and holding is None and being_given_back(stand_in):
        return soon(entry.name, f"claim {namespace}/{mirror.metadata.name} is being given back")
    request = asked(mirror)
    topic = ("claim", namespace, mirror.metadata.name)
    if request is None and (why := unreadable(mirror)):
        message = parameters_unreadable(f"claim {namespace}/{mirror.metadata.name}", why)
        return blocked(entry.name, mirror.metadata.name, reasons.PARAMETERS_INVALID, message, topic)
    if stand_in is not None and not stands_for(stand_in, pod.metadata.uid, entry.name, request):
        message = stand_in_taken(namespace, mirror.metadata.name)
        return blocked(entry.name, mirror.metadata.name, reasons.NAME_TAKEN, message, topic)
    if request is None:
        return blocked(
            entry.name,
            mirror.metadata.name,
            reasons.NAME_TAKEN,
            f"claim {namespace}/{mirror.metadata.name} names Parley's DeviceClass but was not made by Parley: "
            f"make it from a parley.dev ResourceClaimTemplate",
            topic,
        )
    return PodClaim(
        entry.name,
        mirror.metadata.name,
        mirror,
        written=stand_in,
        asked=request,
        holding=holding,
        own_writes=cluster.own_writes,
    )


def _not_generated(cluster: Cluster, namespace: str, template: str, entry: str) -> PodClaim | None:
    ours = cluster.template((namespace, template))
    builtin = cluster.template_mirror((namespace, template))
    topic = ("template", namespace, template)
    if ours is None and builtin is None:
        message = (
            f"template {namespace}/{template} of claim {entry!r} does not exist: "
            f"create a ResourceClaimTemplate of parley.dev (or of resource.k8s.io) with that name"
        )
        return blocked(entry, "", reasons.CLAIM_NOT_FOUND, message, topic)
    if ours is None:
        return None
    if builtin is not None and not owned_by(builtin, ours.metadata.uid):
        message = name_taken("ResourceClaimTemplate", namespace, template)
        return blocked(entry, "", reasons.NAME_TAKEN, message, topic)
    if size := parameters_too_large(ours.spec.spec):
        return blocked(
            entry, "", reasons.PARAMETERS_INVALID, too_large(f"template {namespace}/{template}", size), topic
        )
    if builtin is None and (words := cluster.refusals.of("ResourceClaimTemplate", (namespace, template))):
        message = mirror_refused("ResourceClaimTemplate", namespace, template, words)
        return blocked(entry, "", reasons.WRITE_REFUSED, message, topic)
    return soon(entry, f"the claim for {entry!r} is being made from template {namespace}/{template}", topic)


def with_class(cluster: Cluster, drivers: Mapping[str, object], found: PodClaim) -> PodClaim:
    """The claim with its class, or with the problem that there is none."""
    assert found.asked is not None
    assert found.mirror is not None
    class_name = found.asked.class_name
    full = f"{found.mirror.metadata.namespace}/{found.name}"
    class_ = cluster.class_(class_name)
    topic = ("class", class_name)
    if class_ is None:
        return blocked(found.entry, found.name, reasons.CLASS_NOT_FOUND, class_not_found(class_name, full), topic)
    return replace(found, class_=class_, standalone=class_.driver_name not in drivers)
