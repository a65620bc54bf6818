"""The states of a pod's claims, and the next step that follows from them. Pure.

A claim's state compares the allocation in Parley's memory with the one that the API server shows. The step depends
only on the set of states and on whether the pod is bound, so the order in which events arrive cannot matter.
"""

from collections.abc import Iterable
from enum import Enum


class ClaimState(Enum):
    """The state of one claim of a pod: the ledger's holding compared with what the API shows."""

    PENDING = "pending"
    """Nothing is allocated."""

    OFFERED = "offered"
    """The API offers nodes to the scheduler; no driver has allocated yet."""

    UNKNOWN = "unknown"
    """The API shows an allocation that Parley does not remember: a late write of an earlier leader."""

    JOINABLE = "joinable"
    """Allocated and shareable; this pod does not use it yet."""

    UNWRITTEN = "unwritten"
    """Allocated by a driver, but the API does not show the allocation yet, or not the pod's reservation."""

    STALE = "stale"
    """The informer's cache is older than our last write: its event is still to come."""

    ALLOCATED = "allocated"
    """Allocated, recorded, and reserved for the pod."""

    CLEARED = "cleared"
    """The API showed our allocation, and another client cleared it."""

    MISPLACED = "misplaced"
    """Allocated for another node than the one that the pod is bound to, or may be bound to; or the pod can never
    use the claim, because its mirror was deleted before the pod was added to its users."""


class Step(Enum):
    """The next action for a pod, by the states of its claims."""

    NOTHING = "nothing"
    """Wait for the next event."""

    NEGOTIATE = "negotiate"
    """Find a node, or ask about the one that the pod is bound to, and allocate there."""

    FOLLOW_OFFER = "follow offer"
    """See whether the scheduler chose one of the nodes offered, and allocate there."""

    WRITE = "write"
    """Record the allocations in the API."""

    ADOPT = "adopt"
    """Remember an allocation that the API shows: the pod is bound and may be using it."""

    RELEASE = "release"
    """Release all claims that the pod holds: it can't run where they are allocated."""


_UNUSABLE = {ClaimState.CLEARED, ClaimState.UNKNOWN}
_UNRECORDED = {ClaimState.UNWRITTEN, ClaimState.CLEARED}


def next_step(states: Iterable[ClaimState], *, bound: bool) -> Step:
    """The first step to take.

    A bound pod's claims are repaired, never released: its containers may be using them. Before the pod is bound, a
    cleared allocation means that the scheduler refused the node, and no claim is recorded until all are allocated.
    """
    present = set(states)
    unallocated = bool(present & {ClaimState.PENDING, ClaimState.JOINABLE})
    if ClaimState.STALE in present:
        return Step.NOTHING
    if ClaimState.MISPLACED in present or (not bound and present & _UNUSABLE):
        return Step.RELEASE
    if ClaimState.UNKNOWN in present:
        return Step.ADOPT
    if present & _UNRECORDED and (bound or not unallocated):
        return Step.WRITE
    if ClaimState.OFFERED in present:
        return Step.FOLLOW_OFFER
    return Step.NEGOTIATE if unallocated else Step.NOTHING
