"""All checks: what the others build on first, then section by section."""

from collections.abc import Sequence

from parley.conformance.checks import allocating, answering, deallocating, immediate, restarting, writing
from parley.conformance.results import Check

_BASIC: Sequence[Check] = (*answering.BASIC, *allocating.BASIC, *deallocating.BASIC)
"""What the other checks build on, and end with if it fails: they would say the same in other words."""

CHECKS: Sequence[Check] = (
    *_BASIC,
    *answering.CHECKS,
    *deallocating.CHECKS,
    *allocating.CHECKS,
    *immediate.CHECKS,
    *restarting.CHECKS,
    *writing.CHECKS,
)
