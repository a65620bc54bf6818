"""Conditions of our kinds, as tests look at them."""

from typing import Any

from parley.api.meta import Condition


def condition(item: Any, of_type: str) -> Condition:
    """The object's one condition of that type."""
    (found,) = [c for c in item.status.conditions if c.type == of_type]
    assert isinstance(found, Condition)
    return found


def ready(item: Any) -> str:
    """The reason of the object's condition Ready, "" if it has none. It is True with "Ready" and "InController",
    and with nothing else."""
    if all(found.type != "Ready" for found in item.status.conditions):
        return ""
    found = condition(item, "Ready")
    assert (found.status == "True") == (found.reason in ("Ready", "InController"))
    return found.reason
