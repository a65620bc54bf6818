"""The nodes where an allocation can be used: by their names, by their labels, or every node. Pure.

Labels are evaluated at each use: a node that gets them counts at once, and a node that loses them takes no new
users.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import msgspec

from parley.api.builtin import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from parley.api.selectors import matches, named_by, node_selector


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """The nodes that have all of these labels, including those that get them later."""

    labels: Mapping[str, str]

    @property
    def selector(self) -> NodeSelector:
        """The labels as a Kubernetes node selector: one term, and a requirement for each label."""
        wanted = [
            NodeSelectorRequirement(key=key, operator="In", values=[value])
            for key, value in sorted(self.labels.items())
        ]
        return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=wanted)])

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))


AvailableOn = tuple[str, ...] | NodeLabels | NodeSelector | None
"""Nodes by their names, by labels, or, if a driver in another language reports one, by any other selector; None
is every node."""


class KnownNodes(Protocol):
    """The cluster's nodes, as they are now."""

    def node(self, name: str, /) -> Node | None: ...
    def node_names(self) -> Sequence[str]: ...


class NoNodes:
    """A `KnownNodes` without nodes."""

    def node(self, _name: str, /) -> Node | None:
        return None

    def node_names(self) -> Sequence[str]:
        return ()


class SelectedNodes(Set[str]):
    """The names of the nodes that match all of the selectors now, restricted to `named` if that is given.

    The content changes with the cluster's nodes. Two sets are equal if their selectors and names are.
    """

    def __init__(
        self, known: KnownNodes, selectors: Collection[NodeSelector], named: frozenset[str] | None = None
    ) -> None:
        self._known = known
        self._selectors = selectors
        self._named = named

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or (self._named is not None and name not in self._named):
            return False
        node = self._known.node(name)
        return node is not None and all(matches(selector, node) for selector in self._selectors)

    def __iter__(self) -> Iterator[str]:
        names = self._known.node_names() if self._named is None else sorted(self._named)
        return (name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def __and__(self, other: Set[Any]) -> "SelectedNodes":
        if isinstance(other, SelectedNodes):
            selectors, named = list({**self._distinct, **other._distinct}.values()), other._named
        else:
            selectors, named = list(self._selectors), frozenset(other)
        if self._named is not None:
            named = self._named if named is None else self._named & named
        return SelectedNodes(self._known, selectors, named)

    __rand__ = __and__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SelectedNodes) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _distinct(self) -> Mapping[bytes, NodeSelector]:
        """The selectors by their encoding: computed only to compare sets, which is far rarer than membership."""
        return {msgspec.json.encode(selector): selector for selector in self._selectors}

    @property
    def _identity(self) -> tuple[frozenset[bytes], frozenset[str] | None]:
        return frozenset(self._distinct), self._named

    def __str__(self) -> str:
        return " and ".join(map(words, self._distinct.values()))


Places = tuple[str, ...] | SelectedNodes | None
"""Names of nodes; None is every node."""


def places(on: AvailableOn, known: KnownNodes) -> Places:
    """The nodes where an allocation can be used, by their names."""
    if on is None or isinstance(on, tuple):
        return on
    return SelectedNodes(known, [on.selector if isinstance(on, NodeLabels) else on])


def intersection(sets: Sequence[Set[str]]) -> Set[str]:
    """The nodes that are in each of the sets, of which there is at least one."""
    return reduce(_intersect, sets)


def _intersect(left: Set[str], right: Set[str]) -> Set[str]:
    return right & left if isinstance(right, SelectedNodes) else left & right


def selector_body(on: Sequence[str] | NodeLabels | NodeSelector) -> dict[str, Any]:
    """The nodes as a node selector in an object of the API."""
    if not isinstance(on, NodeLabels | NodeSelector):
        return node_selector(on)
    body: dict[str, Any] = msgspec.to_builtins(on.selector if isinstance(on, NodeLabels) else on)
    return body


def read_selector(selector: NodeSelector) -> tuple[str, ...] | NodeLabels | NodeSelector:
    """The reverse of `selector_body`: names or labels if the selector has nothing else, otherwise the selector."""
    terms = selector.node_selector_terms
    if terms and all(map(_names_nodes, terms)):
        return named_by(selector)
    required = terms[0].match_expressions if len(terms) == 1 and not terms[0].match_fields else []
    labels = {each.key: each.values[0] for each in required if each.operator == "In" and len(each.values) == 1}
    return NodeLabels(labels) if labels and len(labels) == len(required) else selector


def _names_nodes(term: NodeSelectorTerm) -> bool:
    if term.match_expressions or len(term.match_fields) != 1:
        return False
    return (term.match_fields[0].key, term.match_fields[0].operator) == ("metadata.name", "In")


def words(on: NodeLabels | NodeSelector) -> str:
    """The selected nodes in words, for messages: "nodes with topology.kubernetes.io/zone=a"."""
    simple = on if isinstance(on, NodeLabels) else read_selector(on)
    return f"nodes with {simple}" if isinstance(simple, NodeLabels) else "the nodes that its status selects"
