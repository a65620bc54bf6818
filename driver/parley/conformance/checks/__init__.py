"""All checks: the basic ones first, then section by section."""

from collections.abc import Sequence

from parley.conformance.checks import allocating, answering, deallocating, immediate, restarting, writing
from parley.conformance.results import Check

_BASIC: Sequence[Check] = (*answering.BASIC, *allocating.BASIC, *deallocating.BASIC)
"""The checks that all others depend on: if one fails, the others are skipped, as they would fail for the same
cause."""

CHECKS: Sequence[Check] = (
    *_BASIC,
    *answering.CHECKS,
    *deallocating.CHECKS,
    *allocating.CHECKS,
    *immediate.CHECKS,
    *restarting.CHECKS,
    *writing.CHECKS,
)
