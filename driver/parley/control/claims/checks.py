"""Ordered checks: facts are gathered once, then each check looks for one fault. Pure.

A check is named by the fault that it finds. It returns None if there is none, otherwise the `Problem`: a reason, a
message with the remedy, and the changes that may end it. The first check of a list that finds a fault decides.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from parley.control.claims.podclaims import Problem

Facts = TypeVar("Facts")
Check = Callable[[Facts], Problem | None]


def first_problem(checks: Sequence[Check[Facts]], facts: Facts) -> Problem | None:
    """What the first check that finds a fault returns; None if all pass."""
    return next((problem for check in checks if (problem := check(facts)) is not None), None)
