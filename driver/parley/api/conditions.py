"""Conditions of our kinds: computes the list to write when some of them change. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.meta import Condition

_LONGEST = 32768
"""The most characters that the API allows in a message."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """One condition to set: its type, whether it is True, reason and message."""

    type: str
    holds: bool
    reason: str
    message: str


def is_condition_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether there is a condition of that type, and its status is True."""
    return any(condition.type == type_ and condition.status == "True" for condition in conditions)


def updated_conditions(
    conditions: Sequence[Condition], generation: int, now: str, *updates: ConditionUpdate
) -> list[dict[str, Any]] | None:
    """All conditions with these updates applied; None if nothing changes. `now` is RFC 3339.

    `generation` is that of the object on which the updates are based; 0 if it has none.
    """
    known = {condition.type: condition for condition in conditions}
    wanted = [_condition(update, known.get(update.type), generation, now) for update in updates]
    if all(u.type in known and known[u.type].wire() == new for u, new in zip(updates, wanted, strict=True)):
        return None
    types = {update.type for update in updates}
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
