"""Conditions of claims: the list to write when something is to be said anew. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.meta import Condition

_LONGEST = 32768
"""So many characters the API allows a message."""


@dataclass(frozen=True, slots=True)
class Said:
    """One condition: whether it holds, a stable reason code, and the same in words."""

    type: str
    holds: bool
    reason: str
    message: str


def told(conditions: Sequence[Condition], now: str, *said: Said) -> list[dict[str, Any]] | None:
    """All conditions with these as they are said; None if they say so already. `now` is RFC 3339."""
    known = {condition.type: condition for condition in conditions}
    wanted = [_condition(one, known.get(one.type), now) for one in said]
    if all(one.type in known and known[one.type].wire() == new for one, new in zip(said, wanted, strict=True)):
        return None
    types = {one.type for one in said}
    return [*(condition.wire() for condition in conditions if condition.type not in types), *wanted]


def _condition(said: Said, known: Condition | None, now: str) -> dict[str, Any]:
    status = "True" if said.holds else "False"
    return {
        "type": said.type,
        "status": status,
        "reason": said.reason,
        "message": said.message[:_LONGEST],
        "lastTransitionTime": known.last_transition_time if known is not None and known.status == status else now,
    }
