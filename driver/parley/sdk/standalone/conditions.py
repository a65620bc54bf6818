"""The condition `Allocating` of a claim: how far an allocation is, or how it ended. Pure."""

from collections.abc import Sequence
from typing import Final

from parley.api.conditions import is_condition_true
from parley.api.meta import Condition
from parley.api.names import CONDITION_ALLOCATING

IN_PROGRESS: Final = "InProgress"
DONE: Final = "Done"
ENDED: Final = "Ended"
"""The reason when nothing was allocated, and nothing is under way."""


def allocating(conditions: Sequence[Condition]) -> Condition | None:
    """The present condition, None if there is none."""
    return next((condition for condition in conditions if condition.type == CONDITION_ALLOCATING), None)


def in_progress(conditions: Sequence[Condition]) -> bool:
    """Whether the condition says that something is under way."""
    return is_condition_true(conditions, CONDITION_ALLOCATING)
