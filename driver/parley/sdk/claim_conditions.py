"""Conditions of a claim that follow from the rest of its status, `Allocated` and `Ready`. Pure.

    Accepted     the controller's verdict: class, driver and parameters are known
    Allocated    the status has an allocation
    Ready        a pod may use the claim: it is accepted and allocated, and not on its way out (nobody asked for
                 deallocation, no node may still have it prepared, it is not being deleted), and its node takes
                 pods, and did not keep them away for too long. Whether a pod uses it already does not count.

The writer of the status writes them in the same request: the controller, or a standalone driver that allocates.
The controller adds those that a driver in another language leaves out, with its next write of the claim. A
stand-in (for a claim that Kubernetes generated) is never checked by itself: it counts as accepted.
"""

from collections.abc import Collection, Mapping
from typing import Any

from parley.api import reasons
from parley.api.conditions import ConditionUpdate, updated_conditions
from parley.api.models import Allocation, ResourceClaim
from parley.api.names import CONDITION_FAILED, CONDITION_RELEASING, CONDITION_STRANDED, GENERATED_LABEL
from parley.api.selectors import selector_of
from parley.negotiation.availability import NodeLabels, read_selector, words
from parley.negotiation.nowhere import where

Status = Mapping[str, Any]
"""A merge patch of a claim's status: fields that it does not have stay as they are."""


def with_conditions(
    claim: ResourceClaim, status: Status, now: str, *updates: ConditionUpdate, without: Collection[str] = ()
) -> dict[str, Any]:
    """The patch, with the claim's resulting conditions added if any of them changes.

    `updates` are conditions that do not follow from the status, and a reason why nothing is allocated; `without`
    has the types of conditions to remove. `now` is RFC 3339.
    """
    known = [condition for condition in claim.status.conditions if condition.type not in without]
    held = {c.type: ConditionUpdate(c.type, c.status == "True", c.reason, c.message) for c in known}
    held.update({update.type: update for update in updates})
    held[reasons.ALLOCATED] = _allocated(claim, status, held.get(reasons.ALLOCATED))
    set_now = [*(u for u in updates if u.type != reasons.ALLOCATED), held[reasons.ALLOCATED]]
    set_now.append(_ready(claim, status, held))
    conditions = updated_conditions(known, claim.metadata.generation, now, *set_now)
    if conditions is None and len(known) < len(claim.status.conditions):
        conditions = [condition.wire() for condition in known]
    return dict(status) if conditions is None else {**status, "conditions": conditions}


def _allocated(claim: ResourceClaim, status: Status, why: ConditionUpdate | None) -> ConditionUpdate:
    """The condition `Allocated`. `why` is the present one, or the caller's: used only if nothing is allocated."""
    allocation = claim.status.allocation
    if "allocation" in status:
        written = status["allocation"]
        allocation = Allocation.model_validate(written) if written is not None else None
    if allocation is not None:
        return ConditionUpdate(reasons.ALLOCATED, True, reasons.ALLOCATED, _whereabouts(allocation))
    if why is not None and not why.holds:
        return why
    return to_be_allocated(claim)


def to_be_allocated(claim: ResourceClaim) -> ConditionUpdate:
    """The condition `Allocated` of a claim for which nothing was tried yet."""
    if claim.spec.allocation_mode == "Immediate":
        message = "to be allocated at once, on any suitable node"
        return ConditionUpdate(reasons.ALLOCATED, False, reasons.CLAIM_PENDING, message)
    message = "to be allocated for the first pod that uses the claim"
    return ConditionUpdate(reasons.ALLOCATED, False, reasons.WAIT_FOR_FIRST_CONSUMER, message)


def _whereabouts(allocation: Allocation) -> str:
    if allocation.available_on_nodes is None:
        return where(None)
    on = read_selector(selector_of(allocation.available_on_nodes))
    if isinstance(on, tuple):
        return where(on)
    if isinstance(on, NodeLabels):
        return f"allocated on {words(on)}"
    return "allocated on the nodes that status.allocation.availableOnNodes selects"


def _ready(claim: ResourceClaim, status: Status, held: Mapping[str, ConditionUpdate]) -> ConditionUpdate:
    if claim.metadata.deletion_timestamp:
        return _not_ready(reasons.CLAIM_BEING_DELETED, "the claim is being deleted")
    if status.get("deallocationRequested", claim.status.deallocation_requested):
        return _not_ready(reasons.DEALLOCATING, "its driver was asked to deallocate it")
    releasing = held.get(CONDITION_RELEASING)
    if releasing is not None and releasing.holds:
        return _not_ready(reasons.RELEASING, releasing.message)
    for type_, reason in ((CONDITION_FAILED, reasons.CLAIM_FAILED), (CONDITION_STRANDED, reasons.CLAIM_STRANDED)):
        ended = held.get(type_)
        if ended is not None and ended.holds:
            return _not_ready(reason, ended.message)
    accepted = held.get(reasons.ACCEPTED)
    if accepted is None and GENERATED_LABEL not in claim.metadata.labels:
        return _not_ready(reasons.CLAIM_PENDING, "the controller has not checked its class and parameters yet")
    for condition in (accepted, held[reasons.ALLOCATED]):
        if condition is not None and not condition.holds:
            return _not_ready(condition.reason, condition.message)
    return ConditionUpdate(reasons.READY, True, reasons.READY, "accepted and allocated: a pod may use the claim")


def _not_ready(reason: str, message: str) -> ConditionUpdate:
    return ConditionUpdate(reasons.READY, False, reason, message)
