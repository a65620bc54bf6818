"""Ordered checks: facts are gathered once, then each check looks for one problem. Pure.

A check is named after the problem that it looks for. It returns None if there is none, otherwise the `Problem`: a
reason, a message with the remedy, and the topics that may end it. The first check that finds one decides.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from parley.control.claims.podclaims import Problem

Facts = TypeVar("Facts")
Check = Callable[[Facts], Problem | None]


def first_problem(checks: Sequence[Check[Facts]], facts: Facts) -> Problem | None:
    """The problem found by the first check that finds one; None if all pass."""
    return next((problem for check in checks if (problem := check(facts)) is not None), None)
