"""Where a pod's claims stand, and what to do about them next. Pure.

A state is how what Parley holds in memory relates to what the API server shows. The step depends on nothing
but the set of states and whether the pod is bound, so the order in which events arrive cannot matter.
"""

from collections.abc import Iterable
from enum import Enum


class ClaimState(Enum):
    """Where one claim of a pod stands: what the ledger holds, compared with what the API shows."""

    PENDING = "pending"
    """Nothing is allocated."""

    OFFERED = "offered"
    """The API offers nodes to the scheduler; no driver has allocated yet."""

    UNKNOWN = "unknown"
    """The API shows an allocation that Parley does not remember: a late write of an earlier leader."""

    JOINABLE = "joinable"
    """Allocated and shareable; this pod does not use it yet."""

    UNWRITTEN = "unwritten"
    """A driver allocated; the API does not show it, or not that the pod may use it."""

    STALE = "stale"
    """The cache is older than our last write: a newer state is on its way."""

    ALLOCATED = "allocated"
    """Allocated, recorded, and reserved for the pod."""

    CLEARED = "cleared"
    """The API showed our allocation, and another client cleared it."""

    MISPLACED = "misplaced"
    """Allocated for another node than the one that the pod is bound to, or may be bound to; or the pod can never
    use it: its mirror was deleted before the pod was let in."""


class Step(Enum):
    """The one thing to do next for a pod, by the states of its claims."""

    NOTHING = "nothing"
    """Wait for the next event."""

    NEGOTIATE = "negotiate"
    """Find a node, or ask about the one that the pod is bound to, and allocate there."""

    FOLLOW_OFFER = "follow offer"
    """See whether the scheduler chose one of the nodes offered, and allocate there."""

    WRITE = "write"
    """Record in the API what is allocated."""

    ADOPT = "adopt"
    """Remember an allocation that the API shows: the pod is bound and may be using it."""

    RELEASE = "release"
    """Release everything that the pod holds: it can't run where its claims are."""


_UNUSABLE = {ClaimState.CLEARED, ClaimState.UNKNOWN}
_UNRECORDED = {ClaimState.UNWRITTEN, ClaimState.CLEARED}


def next_step(states: Iterable[ClaimState], *, bound: bool) -> Step:
    """The one step that comes first.

    What a bound pod holds is put right, never freed: its containers may be using it. Before the pod is bound, a
    cleared allocation means that the scheduler refused the node, and nothing is recorded until all is allocated.
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
