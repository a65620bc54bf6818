"""What is remembered of an unbound pod between two reconciliations. Lost with the process, at no harm: the next
leader finds out again which nodes the scheduler refuses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parley.control.podscheduling import StandaloneClaim
from parley.negotiation.rounds import Outcome

if TYPE_CHECKING:
    from parley.scheduler.standalone import StandaloneSession

FIRST_BLOCK = 0.1
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0


@dataclass(slots=True)
class Attempt:
    """One pod's way so far.

    `arrived` is its place among all pods, by the first look at each. `refused` are nodes that the scheduler
    refused or that a driver declined lately; `excluded` those where a driver said that it will never do, with its
    words; `left` those that the pod had to leave, to be avoided.
    `offered` are the nodes that the scheduler may choose from now. `asked` are the claims for standalone drivers,
    `session` how it stands with them, `stand_ins` when claims were last made for them, by name. `rounds` is the
    number of the last question, `resumed` whether an earlier leader's selection was looked for. `retry_at` and
    `blocked_until` are on the event loop's clock.
    """

    arrived: int = 0
    outcome: Outcome = field(default_factory=Outcome)
    drivers: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[StandaloneClaim, ...] = ()
    session: "StandaloneSession | None" = None
    stand_ins: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    resumed: bool = False
    refused: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    excluded: dict[str, str] = field(default_factory=dict)
    offered: tuple[str, ...] = ()
    exact: bool = False
    pauses: int = 0
    blocks: int = 0
    blocked_until: float = 0.0
    retry_at: float = 0.0

    def refuse(self, *nodes: str) -> None:
        """The scheduler did not place the pod on these nodes; it is asked exactly from now on."""
        self.refused.update(nodes)
        self.exact = True

    def offer_ended(self) -> None:
        """The scheduler took the offer back, if there was one, without choosing any of its nodes."""
        if self.offered:
            self.refuse(*self.offered)
        self.offered = ()

    def pause(self, now: float) -> float:
        """Everything was refused: how many seconds to wait before offering it again."""
        length = float(min(FIRST_PAUSE * 2**self.pauses, LONGEST_PAUSE))
        self.pauses += 1
        self.retry_at = now + length
        return length

    def block(self, now: float) -> float:
        """The API server refused the allocation: how many seconds not to try, whatever wakes the pod meanwhile.

        Without this two pods could wake each other for ever by what each gives back.
        """
        length = float(min(FIRST_BLOCK * 2**self.blocks, LONGEST_PAUSE))
        self.blocks += 1
        self.blocked_until = now + length
        return length

    def begin_again(self) -> None:
        """The pause is over, or something changed that the scheduler may judge differently."""
        self.refused.clear()
        self.retry_at = 0.0
        if self.session is not None and not self.session.selected and self.session.negotiation.over:
            self.session = None
