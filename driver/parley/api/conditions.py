"""Conditions of our kinds: the list to write when some of them change. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.meta import Condition

_LONGEST = 32768
"""So many characters the API allows a message."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """One condition to set: its type, whether it is True, reason and message."""

    type: str
    holds: bool
    reason: str
    message: str


def is_condition_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether there is a condition of that type, and it is true."""
    return any(condition.type == type_ and condition.status == "True" for condition in conditions)


def updated_conditions(
    conditions: Sequence[Condition], generation: int, now: str, *updates: ConditionUpdate
) -> list[dict[str, Any]] | None:
    """All conditions with these updates applied; None if nothing changes. `now` is RFC 3339.

    `generation` is the object's, which the updates were decided on; 0 if it has none.
    """
    known = {condition.type: condition for condition in conditions}
    wanted = [_condition(one, known.get(one.type), generation, now) for one in updates]
    if all(one.type in known and known[one.type].wire() == new for one, new in zip(updates, wanted, strict=True)):
        return None
    types = {one.type for one in updates}
    return [*(condition.wire() for condition in conditions if condition.type not in types), *wanted]


def _condition(update: ConditionUpdate, known: Condition | None, generation: int, now: str) -> dict[str, Any]:
    status = "True" if update.holds else "False"
    return {
        "type": update.type,
        "status": status,
        "reason": update.reason,
        "message": update.message[:_LONGEST],
        "lastTransitionTime": known.last_transition_time if known is not None and known.status == status else now,
        **({"observedGeneration": generation} if generation else {}),
    }
