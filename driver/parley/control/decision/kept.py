"""Nodes where nothing may be allocated for a pod, because the claims that evicted pods release there are kept for
nominated pods (`control.nominations`)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from parley.control.decision.demand import Demand
from parley.control.nominations import LEAST, Nomination
from parley.control.objects.pod import priority
from parley.control.state import State
from parley.sdk import ClaimRequest, PodReference, Request
from parley.sdk.merging import merge_requests

KEPT = "what evicted pods release there is kept for the pod that they were evicted for"


def kept_nodes(state: State, uid: str, priority: int | None, demand: Demand) -> dict[str, str]:
    """The nodes where nothing may be allocated for the pod, or the claim without a pod, of that UID, each with the
    reason: not enough is left beside the nominated pods that come first, as with those of kube-scheduler.

    These are the pods of the same or a higher priority that are nominated there; if the pod is nominated there
    itself, only those of a higher priority.
    """
    shared = state.nominations.shared(uid, priority, frozenset(demand.drivers.values()))
    return {node: KEPT for node, least in shared.items() if not _enough(state, uid, least, node, demand)}


def kept_from(
    state: State, uid: str, priority: int | None, demand: Demand, node: str, allocated: Iterable[str]
) -> str:
    """Why the claims with the UIDs `allocated`, which drivers have just allocated on the node for the pod, or for
    no pod, have to be deallocated again, because others were nominated while the drivers worked; "" if they need
    not. Raises DriverFault."""
    least = state.nominations.shared(uid, priority, frozenset(demand.drivers.values())).get(node)
    return KEPT if least is not None and not _enough(state, uid, least, node, demand, allocated) else ""


def kept_units(state: State, pod: PodReference, class_name: str) -> dict[str, int]:
    """The part of the namespace's limit of the class that nominated pods of at least the pod's priority will take:
    units by the claims' UIDs. Without a pod all of them come first. Raises DriverFault."""
    known = state.cluster.pod_with_uid(pod)
    least = priority(known) if known is not None else LEAST
    return {
        claim.uid: state.drivers[name].units(claim)
        for one in state.nominations.in_namespace(pod.namespace, pod.uid, least)
        for name, request in one.requests.items()
        for claim in request.claims
        if claim.class_name == class_name
    }


def _enough(state: State, uid: str, least: int, node: str, demand: Demand, allocated: Iterable[str] = ()) -> bool:
    """Whether there is enough now, before others' victims release theirs. False if a driver can't tell."""
    others = other_nominations(state, uid, least, node)
    names = [name for name in demand.requests if any(name in one.requests for one in others)]
    return all(
        state.drivers[name].supports_preemption and is_enough(state, name, demand, node, others, allocated)
        for name in names
    )


def other_nominations(state: State, uid: str, priority: int, node: str) -> list[Nomination]:
    """The nominations of others of at least that priority on the node, as far as they are not allocated yet. A pod
    whose allocation is being released does not count in the node's usage, so that its requests count here."""
    others = (_unallocated(state, one) for one in state.nominations.others_on(uid, priority, node))
    return [one for one in others if one.requests or state.cluster.usage.node_of(one.pod.uid) is None]


def _unallocated(state: State, one: Nomination) -> Nomination:
    """The nomination without its allocated requests: all or none are, but while claims are released."""
    if not state.ledger.of_pod(one.pod):
        return one
    left: dict[str, Request[Any, Any]] = {}
    for name, request in one.requests.items():
        if claims := tuple(claim for claim in request.claims if not _holds(state, one.pod, claim)):
            left[name] = replace(request, claims=claims)
    return replace(one, requests=left)


def _holds(state: State, pod: PodReference, claim: ClaimRequest[Any, Any]) -> bool:
    holding = state.ledger.get(claim.uid) or state.ledger.of_entry(pod, claim.name)
    return holding is not None and pod.uid in holding.pods


def is_enough(
    state: State, name: str, demand: Demand, node: str, others: Iterable[Nomination], freed: Iterable[str] = ()
) -> bool:
    """Whether the driver has enough on the node for the demand and for others, if the claims with the UIDs `freed`
    were free. What it is allocating for the others now counts once, whether it holds that already or not. Raises
    DriverFault."""
    theirs = [one.requests[name] for one in others if name in one.requests]
    coming = {claim.uid for request in theirs for claim in request.claims if claim.uid in state.ledger.allocating}
    return state.drivers[name].viable_without(
        merge_requests(demand.requests[name], theirs), node, coming.union(freed)
    )
