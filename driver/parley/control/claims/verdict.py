"""The conditions of a named claim that follow from the controller's verdict on class, driver and parameters. Pure.

Whoever is to allocate an immediate claim writes why it is not allocated. Nobody is as long as the verdict prevents
it: then `Allocated` repeats the verdict, and must not outlast it.
"""

from parley.api import reasons
from parley.api.conditions import ConditionUpdate
from parley.api.models import ResourceClaim
from parley.sdk.claim_conditions import to_be_allocated
from parley.sdk.immediate import is_pending


def verdict_conditions(
    claim: ResourceClaim, code: str, message: str, *, standalone: bool
) -> list[ConditionUpdate]:
    """`Accepted`, and `Allocated` if the controller writes it. `standalone`: the claim has a class whose driver is
    a standalone one, which itself says why it does not allocate; but not if limits prevent it."""
    accepted = ConditionUpdate(reasons.ACCEPTED, code == reasons.ACCEPTED, code, message)
    if not is_pending(claim):
        return [accepted]
    repeats = _repeats_verdict(claim)
    if accepted.holds:
        return [accepted, to_be_allocated(claim)] if repeats else [accepted]
    if standalone and code != reasons.LIMIT_REACHED and not repeats:
        return [accepted]
    return [accepted, ConditionUpdate(reasons.ALLOCATED, False, code, message)]


def _repeats_verdict(claim: ResourceClaim) -> bool:
    """Whether `Allocated` has the reason for which the claim was not accepted until now."""
    rejected = {c.type: c.reason for c in claim.status.conditions if c.status == "False"}
    return reasons.ALLOCATED in rejected and rejected[reasons.ALLOCATED] == rejected.get(reasons.ACCEPTED)
