"""Checks and their results: passed, failed with what was expected and seen, or skipped with the reason."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.conformance.stage import Stage


class CheckOutcome(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Unmet(Exception):
    """Raised if the driver broke the rule: the object that shows it, what was expected, what was seen."""

    def __init__(self, about: str, expected: str, seen: str) -> None:
        super().__init__(f"{about}: expected {expected}; seen: {seen}")
        self.about = about
        self.expected = expected
        self.seen = seen


class NotApplicable(Exception):
    """Raised if the check can't be run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one rule of the protocol; the docstring of `play` is the rule. `section` is its heading in
    docs/driver-protocol.md. The check is skipped if one of `needs` failed, whose result says more, and after a
    `basic` check failed all others are skipped. `restarts`: the driver is killed and started again."""

    name: str
    section: str
    play: "Callable[[Stage], Awaitable[None]]"
    needs: tuple[str, ...] = ()
    restarts: bool = False
    basic: bool = False

    @property
    def rule(self) -> str:
        """The rule in one sentence."""
        return self.play.__doc__ or ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check. `about`, `expected` and `seen` are a failure's; `why` is why the check was
    skipped."""

    check: Check
    outcome: CheckOutcome
    about: str = ""
    expected: str = ""
    seen: str = ""
    why: str = ""
