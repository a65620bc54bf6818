"""The rounds of one negotiation: who is asked about which nodes, until when.

The first round proposes at most `first` candidates, each further one twice as many, up to `limit`. If too few
are viable, the next candidates are those that all drivers propose instead, then nodes not asked about yet. Each
node is asked about once. It ends when enough nodes are viable, when every fitting node was asked about, or when
a driver knows that there is no other.

`Negotiation` takes the answers of a round whenever they are there; `negotiate` is for drivers that answer at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from parley.api.builtin import NodeSelector
from parley.negotiation.answers import (
    Answers,
    Proposal,
    agreed_alternatives,
    nowhere_else,
    refusals,
    viable_for_all,
)

FIRST_CANDIDATES = 8
"""Mostly the first node will do, and what was asked and answered about all is written into one object per pod:
with 32 instead of 8, a pod costs the control plane about a tenth more (`benchmarks/lab-book.md`)."""

DEFAULT_CANDIDATES = 32
MAX_CANDIDATES = 128


class FittingNodes(Protocol):
    """The nodes that are eligible before any driver is asked, in order of preference."""

    def __iter__(self) -> Iterator[str]: ...

    def fits(self, node: str) -> bool:
        """Whether a node that a driver proposes is eligible."""
        ...

    def matching(self, selectors: Sequence[NodeSelector]) -> Iterator[str]:
        """The fitting nodes that match each of the selectors, in order of preference."""
        ...


Ask = Callable[[Sequence[str]], Answers]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a negotiation is, or how it ended.

    `candidates` and `answers` are those of the last round, `viable` the viable nodes found in all rounds in
    order of preference, `refused` what speaks against the other nodes that were asked about.
    """

    round: int = 0
    candidates: tuple[str, ...] = ()
    answers: Answers = field(default_factory=dict)
    viable: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def with_answers(self, answers: Answers) -> "Outcome":
        """The same round with what was answered."""
        return Outcome(
            round=self.round,
            candidates=self.candidates,
            answers=answers,
            viable=self.viable + viable_for_all(self.candidates, answers),
            refused={**self.refused, **refusals(answers)},
        )


class Negotiation:
    """One negotiation, a question at a time: ask about `outcome.candidates`, then `close` the round.

    `in_order` has the fitting nodes in another order than they have themselves. `round` is the number of the last
    question about the pod before, `start` the nodes to begin with.
    """

    def __init__(
        self,
        nodes: FittingNodes,
        *,
        in_order: Iterator[str] | None = None,
        first: int = FIRST_CANDIDATES,
        limit: int = DEFAULT_CANDIDATES,
        enough: int = 1,
        round: int = 0,
        start: Proposal | None = None,
    ) -> None:
        self._fresh = _Fresh(nodes, in_order)
        self._limit = limit
        self._enough = enough
        self._size = min(first, limit)
        self.outcome = Outcome(round=round)
        begin = self._fresh.take(self._size) if start is None else self._fresh.proposed(start, limit)
        self.over = not self._ask(begin)

    def _ask(self, candidates: tuple[str, ...]) -> bool:
        if not candidates:
            return False
        before = self.outcome
        self.outcome = Outcome(before.round + 1, candidates, {}, before.viable, before.refused)
        return True

    def enough(self, answers: Answers) -> bool:
        """Whether these answers to the open question find enough nodes."""
        return len(self.outcome.with_answers(answers).viable) >= self._enough

    def close(self, answers: Answers) -> None:
        """These are the answers to the open question. Afterwards it is `over`, or another question is open."""
        self.outcome = self.outcome.with_answers(answers)
        if len(self.outcome.viable) >= self._enough or nowhere_else(answers):
            self.over = True
            return
        self._size = min(2 * self._size, self._limit)
        proposed = self._fresh.proposed(agreed_alternatives(answers), self._limit)
        self.over = not self._ask(proposed or self._fresh.take(self._size))

    def widen(self, nodes: FittingNodes) -> None:
        """Other nodes may be eligible by now. Where they were not asked about, it is not `over`."""
        self._fresh.replace(nodes)
        self.over = not self._ask(self._fresh.take(self._limit))


def negotiate(
    nodes: FittingNodes,
    ask: Ask,
    *,
    in_order: Iterator[str] | None = None,
    first: int = FIRST_CANDIDATES,
    limit: int = DEFAULT_CANDIDATES,
    enough: int = 1,
) -> Outcome:
    """Ask until `enough` nodes are viable for all claims, or there is nobody left to ask about. The rest as for
    `Negotiation`."""
    negotiation = Negotiation(nodes, in_order=in_order, first=first, limit=limit, enough=enough)
    while not negotiation.over:
        negotiation.close(ask(negotiation.outcome.candidates))
    return negotiation.outcome


class _Fresh:
    """Hands out fitting nodes, each once."""

    def __init__(self, nodes: FittingNodes, in_order: Iterator[str] | None) -> None:
        self._nodes = nodes
        self._in_order = iter(nodes) if in_order is None else in_order
        self._seen: set[str] = set()

    def replace(self, nodes: FittingNodes) -> None:
        """From now on these are the fitting nodes."""
        self._nodes, self._in_order = nodes, iter(nodes)

    def take(self, limit: int) -> tuple[str, ...]:
        """The next nodes in order of preference."""
        return self._first_new(self._in_order, limit)

    def proposed(self, proposal: Proposal | None, limit: int) -> tuple[str, ...]:
        """Those of the proposed nodes that are eligible and new."""
        if proposal is None:
            return ()
        if proposal.nodes is None:
            return self._first_new(self._nodes.matching(proposal.selectors), limit)
        if proposal.selectors:
            matching = frozenset(self._nodes.matching(proposal.selectors))
            return self._first_new((node for node in proposal.nodes if node in matching), limit)
        return self._first_new((node for node in proposal.nodes if self._nodes.fits(node)), limit)

    def _first_new(self, nodes: Iterable[str], limit: int) -> tuple[str, ...]:
        taken: list[str] = []
        for node in nodes:
            if node not in self._seen:
                self._seen.add(node)
                taken.append(node)
            if len(taken) == limit:
                break
        return tuple(taken)
