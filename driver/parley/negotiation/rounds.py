"""The rounds of one negotiation with drivers that answer at once: who is asked about which nodes, until when.

The first round proposes at most `first` candidates, each further one twice as many, up to `limit`. If too few
are viable, the next candidates are those that all drivers propose instead, then nodes not asked about yet. Each
node is asked about once. It ends when enough nodes are viable, when every fitting node was asked about, or when
a driver knows that there is no other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from parley.negotiation.answers import Answers, agreed_alternatives, nowhere_else, refusals, viable_for_all

FIRST_CANDIDATES = 8
"""Mostly the first node will do, and what was asked and answered about all is written into one object per pod:
with 32 instead of 8, a pod costs the control plane about a tenth more (`docs/performance.md`)."""

DEFAULT_CANDIDATES = 32
MAX_CANDIDATES = 128


class FittingNodes(Protocol):
    """The nodes that come into question before any driver is asked, in order of preference."""

    def __iter__(self) -> Iterator[str]: ...

    def fits(self, node: str) -> bool:
        """Whether a node that a driver proposes comes into question."""
        ...


Ask = Callable[[Sequence[str]], Answers]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a negotiation ended.

    `candidates` and `answers` are those of the last round, `viable` the viable nodes found in all rounds in
    order of preference, `refused` what speaks against the other nodes that were asked about.
    """

    round: int = 0
    candidates: tuple[str, ...] = ()
    answers: Answers = field(default_factory=dict)
    viable: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def negotiate(
    nodes: FittingNodes,
    ask: Ask,
    *,
    first: int = FIRST_CANDIDATES,
    limit: int = DEFAULT_CANDIDATES,
    enough: int = 1,
) -> Outcome:
    """Ask until `enough` nodes are viable for all claims, or there is nobody left to ask about."""
    fresh = _Fresh(nodes)
    outcome = Outcome()
    size = min(first, limit)
    candidates = fresh.take(size)
    while candidates:
        answers = ask(candidates)
        outcome = Outcome(
            round=outcome.round + 1,
            candidates=candidates,
            answers=answers,
            viable=outcome.viable + viable_for_all(candidates, answers),
            refused={**outcome.refused, **refusals(answers)},
        )
        if len(outcome.viable) >= enough or nowhere_else(answers):
            break
        size = min(2 * size, limit)
        candidates = fresh.proposed(agreed_alternatives(answers) or (), limit) or fresh.take(size)
    return outcome


class _Fresh:
    """Hands out fitting nodes, each once."""

    def __init__(self, nodes: FittingNodes) -> None:
        self._nodes = nodes
        self._in_order = iter(nodes)
        self._seen: set[str] = set()

    def take(self, limit: int) -> tuple[str, ...]:
        """The next nodes in order of preference."""
        taken: list[str] = []
        while len(taken) < limit and (node := next(self._in_order, None)) is not None:
            if node not in self._seen:
                self._seen.add(node)
                taken.append(node)
        return tuple(taken)

    def proposed(self, nodes: Sequence[str], limit: int) -> tuple[str, ...]:
        """Those of the proposed nodes that come into question and are new."""
        taken = [node for node in nodes if node not in self._seen and self._nodes.fits(node)][:limit]
        self._seen.update(taken)
        return tuple(taken)
