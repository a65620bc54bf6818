"""The drivers' answers about candidate nodes, and their combined meaning."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from parley.api.builtin import NodeSelector
from parley.api.wording import listed, noun_for

_NAMES_SHOWN = 3


class CannotAnswer(NamedTuple):
    """Why a driver can't answer a question, whatever the node: a reason code and a message."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A driver's answer about one claim.

    `viable` are those of the asked nodes where all claims of the request could be allocated now.
    `alternatives` are at most 32 other nodes worth asking about, or a selector of such nodes; None if the driver
    does not know, and an empty tuple if it knows that there is no other. `reasons` says for each node that is not
    viable what is missing ("0 of 1 device of model a100 free"). `failure` is why the driver could not answer.
    """

    viable: tuple[str, ...]
    alternatives: tuple[str, ...] | NodeSelector | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    failure: CannotAnswer | None = None


Answers = Mapping[str, Answer]
"""Answers by the name of the pod's claim entry."""


def viable_for_all(candidates: Sequence[str], answers: Answers) -> tuple[str, ...]:
    """The candidates that every claim finds viable, in the candidates' order."""
    sets = [frozenset(answer.viable) for answer in answers.values()]
    return tuple(node for node in candidates if all(node in viable for viable in sets))


@dataclass(frozen=True, slots=True)
class Proposal:
    """The nodes that all drivers with an opinion propose: `nodes` (None: any) that match each of the selectors."""

    nodes: tuple[str, ...] | None
    selectors: tuple[NodeSelector, ...]


def agreed_alternatives(answers: Answers) -> Proposal | None:
    """The alternatives on which all drivers with an opinion agree, in the first list's order; None without any."""
    opinions = [answer.alternatives for answer in answers.values() if answer.alternatives is not None]
    if not opinions:
        return None
    lists = [opinion for opinion in opinions if isinstance(opinion, tuple)]
    others = [frozenset(names) for names in lists[1:]]
    nodes = tuple(node for node in lists[0] if all(node in other for other in others)) if lists else None
    return Proposal(nodes, tuple(opinion for opinion in opinions if isinstance(opinion, NodeSelector)))


def no_other_node(answers: Answers) -> bool:
    """Whether some driver knows that no node beside the asked ones will do."""
    return any(answer.alternatives == () for answer in answers.values())


def without(answers: Answers, lost: Mapping[str, str]) -> Answers:
    """The answers without nodes that are not viable after all; `lost` has the reason for each of them."""
    if not lost:
        return answers
    return {name: _without(answer, lost) for name, answer in answers.items()}


def _without(answer: Answer, lost: Mapping[str, str]) -> Answer:
    viable = tuple(node for node in answer.viable if node not in lost)
    reasons = {node: lost[node] for node in answer.viable if node in lost}
    return replace(answer, viable=viable, reasons={**answer.reasons, **reasons})


def not_answered(answers: Answers) -> tuple[str, str] | None:
    """Reason code and message of the first claim whose driver could not answer; None if all could."""
    failures = ((name, answer.failure) for name, answer in answers.items() if answer.failure is not None)
    return next(((failure.code, f"claim {name}: {failure.message}") for name, failure in failures), None)


def refusals(answers: Answers) -> dict[str, str]:
    """Why each node is not viable, over all claims: "claim gpu: 0 of 1 device free"."""
    by_node: defaultdict[str, list[str]] = defaultdict(list)
    for name, answer in answers.items():
        for node, reason in answer.reasons.items():
            by_node[node].append(f"claim {name}: {reason}")
    return {node: ", ".join(reasons) for node, reasons in by_node.items()}


def by_reason(reasons: Mapping[str, str]) -> str:
    """One message from the reasons of all nodes, grouped by reason: "node a: cordoned; nodes b, c: claim gpu: has
    no devices"."""
    nodes_by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for node, reason in sorted(reasons.items()):
        nodes_by_reason[reason].append(node)
    return "; ".join(f"{_names(nodes)}: {reason}" for reason, nodes in nodes_by_reason.items())


def _names(nodes: Iterable[str]) -> str:
    names = list(nodes)
    return f"{noun_for(len(names), 'node')} {listed(names, _NAMES_SHOWN)}"
