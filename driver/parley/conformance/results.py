"""What a check found: passed, failed with what was expected and seen, or skipped with the reason."""

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
    """Raised when the driver broke the rule: which object shows it, what was expected, what was seen."""

    def __init__(self, about: str, expected: str, seen: str) -> None:
        super().__init__(f"{about}: expected {expected}; seen: {seen}")
        self.about = about
        self.expected = expected
        self.seen = seen


class NotApplicable(Exception):
    """Raised when the check can't be made here; the message says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One rule of the protocol, which is the docstring of `play`. `section` is the heading of
    docs/driver-protocol.md that has it. `needs` are checks that say more if they fail: then this one is not made.
    After a `basic` one that failed no other is made. `restarts` if the driver is killed and started again."""

    name: str
    section: str
    play: "Callable[[Stage], Awaitable[None]]"
    needs: tuple[str, ...] = ()
    restarts: bool = False
    basic: bool = False

    @property
    def rule(self) -> str:
        """In one sentence."""
        return self.play.__doc__ or ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's. `about`, `expected` and `seen` are of a failure; `why` is the reason of what was skipped."""

    check: Check
    outcome: CheckOutcome
    about: str = ""
    expected: str = ""
    seen: str = ""
    why: str = ""
