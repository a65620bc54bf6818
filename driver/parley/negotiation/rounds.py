"""The rounds of one negotiation: which candidate nodes the drivers are asked about, and when it ends.

The first round proposes at most `first` candidates, each further one twice as many, up to `limit`. If too few
are viable, the next candidates are the alternatives on which all drivers agree, then nodes not asked about yet.
Each node is asked about once. A negotiation ends when enough nodes are viable, when every fitting node was asked
about, or when a driver knows that there is no other.

`Negotiation` takes the answers of a round whenever they arrive; `negotiate` is for drivers that answer at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from parley.api.builtin import NodeSelector
from parley.negotiation.answers import (
    Answers,
    Proposal,
    agreed_alternatives,
    no_other_node,
    refusals,
    viable_for_all,
)

FIRST_CANDIDATES = 8
"""Mostly the first node is viable, and the candidates with all answers are written into one object per pod:
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
    """The state of a negotiation after its last round.

    `candidates` and `answers` are those of the last round, `viable` the viable nodes found in all rounds in
    order of preference, `refused` why the other nodes that were asked about are not viable.
    """

    round: int = 0
    candidates: tuple[str, ...] = ()
    answers: Answers = field(default_factory=dict)
    viable: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def with_answers(self, answers: Answers) -> "Outcome":
        """The same round with the drivers' answers."""
        return Outcome(
            round=self.round,
            candidates=self.candidates,
            answers=answers,
            viable=self.viable + viable_for_all(self.candidates, answers),
            refused={**self.refused, **refusals(answers)},
        )


class Negotiation:
    """One negotiation, a question at a time: ask about `outcome.candidates`, then `close` the round.

    `in_order` iterates over the fitting nodes in another order than their own. `round` is the number of the pod's
    last round before this negotiation, `start` the nodes to ask about first.
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
        self._unasked = _UnaskedNodes(nodes, in_order)
        self._limit = limit
        self._enough = enough
        self._size = min(first, limit)
        self.outcome = Outcome(round=round)
        begin = self._unasked.take(self._size) if start is None else self._unasked.proposed(start, limit)
        self.over = not self._open_round(begin)

    def _open_round(self, candidates: tuple[str, ...]) -> bool:
        if not candidates:
            return False
        before = self.outcome
        self.outcome = Outcome(before.round + 1, candidates, {}, before.viable, before.refused)
        return True

    def enough(self, answers: Answers) -> bool:
        """Whether enough nodes are viable with these answers to the open round."""
        return len(self.outcome.with_answers(answers).viable) >= self._enough

    def close(self, answers: Answers) -> None:
        """Ends the open round with its answers. Then the negotiation is `over`, or the next round is open."""
        self.outcome = self.outcome.with_answers(answers)
        if len(self.outcome.viable) >= self._enough or no_other_node(answers):
            self.over = True
            return
        self._size = min(2 * self._size, self._limit)
        proposed = self._unasked.proposed(agreed_alternatives(answers), self._limit)
        self.over = not self._open_round(proposed or self._unasked.take(self._size))

    def widen(self, nodes: FittingNodes) -> None:
        """Replaces the fitting nodes; opens another round if some of them were not asked about yet."""
        self._unasked.replace(nodes)
        self.over = not self._open_round(self._unasked.take(self._limit))


def negotiate(
    nodes: FittingNodes,
    ask: Ask,
    *,
    in_order: Iterator[str] | None = None,
    first: int = FIRST_CANDIDATES,
    limit: int = DEFAULT_CANDIDATES,
    enough: int = 1,
) -> Outcome:
    """Asks until `enough` nodes are viable for all claims, or no node is left to ask about. The other parameters
    are those of `Negotiation`."""
    negotiation = Negotiation(nodes, in_order=in_order, first=first, limit=limit, enough=enough)
    while not negotiation.over:
        negotiation.close(ask(negotiation.outcome.candidates))
    return negotiation.outcome


class _UnaskedNodes:
    """The fitting nodes that were not asked about yet: hands out each node once."""

    def __init__(self, nodes: FittingNodes, in_order: Iterator[str] | None) -> None:
        self._nodes = nodes
        self._in_order = iter(nodes) if in_order is None else in_order
        self._asked: set[str] = set()

    def replace(self, nodes: FittingNodes) -> None:
        """Replaces the fitting nodes; those handed out before stay excluded."""
        self._nodes, self._in_order = nodes, iter(nodes)

    def take(self, limit: int) -> tuple[str, ...]:
        """The next nodes in order of preference."""
        return self._first_unasked(self._in_order, limit)

    def proposed(self, proposal: Proposal | None, limit: int) -> tuple[str, ...]:
        """The proposed nodes that are eligible and were not asked about yet."""
        if proposal is None:
            return ()
        if proposal.nodes is None:
            return self._first_unasked(self._nodes.matching(proposal.selectors), limit)
        if proposal.selectors:
            matching = frozenset(self._nodes.matching(proposal.selectors))
            return self._first_unasked((node for node in proposal.nodes if node in matching), limit)
        return self._first_unasked((node for node in proposal.nodes if self._nodes.fits(node)), limit)

    def _first_unasked(self, nodes: Iterable[str], limit: int) -> tuple[str, ...]:
        taken: list[str] = []
        for node in nodes:
            if node not in self._asked:
                self._asked.add(node)
                taken.append(node)
            if len(taken) == limit:
                break
        return tuple(taken)
