"""The condition `Allocating` of a claim: how far an allocation is, or how it ended. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from parley.api.meta import Condition
from parley.api.names import CONDITION_ALLOCATING

IN_PROGRESS: Final = "InProgress"
DONE: Final = "Done"
ENDED: Final = "Ended"
"""Nothing was allocated, and nothing is under way."""

MAX_MESSAGE = 32768


def allocating(conditions: Sequence[Condition]) -> Condition | None:
    """The condition as it is."""
    return next((condition for condition in conditions if condition.type == CONDITION_ALLOCATING), None)


def in_progress(conditions: Sequence[Condition]) -> bool:
    """Whether the condition says that something is under way."""
    known = allocating(conditions)
    return known is not None and known.status == "True"


def told(
    conditions: Sequence[Condition], status: str, reason: str, message: str, now: datetime
) -> list[dict[str, Any]] | None:
    """All conditions with this one as given; None if it says so already."""
    known, message = allocating(conditions), message[:MAX_MESSAGE]
    if known is not None and (known.status, known.reason, known.message) == (status, reason, message):
        return None
    since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if known is not None and known.status == status:
        since = known.last_transition_time
    condition = {
        "type": CONDITION_ALLOCATING,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
    return [*(c.wire() for c in conditions if c.type != CONDITION_ALLOCATING), condition]
