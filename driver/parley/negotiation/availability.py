"""Where something that is allocated can be used: on nodes by their names, by their labels, or on every node. Pure.

What goes by labels is decided anew whenever it is asked: a node that comes to have them counts at once, and one
that has them no more takes no new users.
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
    """The nodes that have all of these labels, also those that come to have them later."""

    labels: Mapping[str, str]

    @property
    def selector(self) -> NodeSelector:
        """As Kubernetes has it: one term, and a requirement for each label."""
        wanted = [
            NodeSelectorRequirement(key=key, operator="In", values=[value])
            for key, value in sorted(self.labels.items())
        ]
        return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=wanted)])

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.items()))


AvailableOn = tuple[str, ...] | NodeLabels | NodeSelector | None
"""Nodes by their names, by labels, or, if a driver in another language says so, by any other selector; None is
everywhere."""


class KnownNodes(Protocol):
    """The cluster's nodes, as they are now."""

    def node(self, name: str, /) -> Node | None: ...
    def node_names(self) -> Sequence[str]: ...


class NoNodes:
    """No nodes are known."""

    def node(self, _name: str, /) -> Node | None:
        return None

    def node_names(self) -> Sequence[str]:
        return ()


class SelectedNodes(Set[str]):
    """The names of the nodes that all of the selectors hold for now, of those in `named` if that is given.

    It changes with the nodes. Equal are those that select in the same way.
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
        return isinstance(other, SelectedNodes) and self._way == other._way

    def __hash__(self) -> int:
        return hash(self._way)

    @property
    def _distinct(self) -> Mapping[bytes, NodeSelector]:
        """The selectors by what they say: encoded only to compare them, as membership is asked far more often."""
        return {msgspec.json.encode(selector): selector for selector in self._selectors}

    @property
    def _way(self) -> tuple[frozenset[bytes], frozenset[str] | None]:
        return frozenset(self._distinct), self._named

    def __str__(self) -> str:
        return " and ".join(map(words, self._distinct.values()))


Places = tuple[str, ...] | SelectedNodes | None
"""Names of nodes; None is everywhere."""


def places(on: AvailableOn, known: KnownNodes) -> Places:
    """The nodes, by their names."""
    if on is None or isinstance(on, tuple):
        return on
    return SelectedNodes(known, [on.selector if isinstance(on, NodeLabels) else on])


def in_all(limits: Sequence[Set[str]]) -> Set[str]:
    """The nodes that are in each of the sets, of which there is at least one."""
    return reduce(_both, limits)


def _both(one: Set[str], other: Set[str]) -> Set[str]:
    return other & one if isinstance(other, SelectedNodes) else one & other


def selector_body(on: Sequence[str] | NodeLabels | NodeSelector) -> dict[str, Any]:
    """As a node selector in an object of the API."""
    if not isinstance(on, NodeLabels | NodeSelector):
        return node_selector(on)
    body: dict[str, Any] = msgspec.to_builtins(on.selector if isinstance(on, NodeLabels) else on)
    return body


def read_selector(selector: NodeSelector) -> tuple[str, ...] | NodeLabels | NodeSelector:
    """What such a body says: names or labels if nothing else is in it."""
    terms = selector.node_selector_terms
    if terms and all(map(_names_nodes, terms)):
        return named_by(selector)
    wanted = terms[0].match_expressions if len(terms) == 1 and not terms[0].match_fields else []
    labels = {one.key: one.values[0] for one in wanted if one.operator == "In" and len(one.values) == 1}
    return NodeLabels(labels) if labels and len(labels) == len(wanted) else selector


def _names_nodes(term: NodeSelectorTerm) -> bool:
    if term.match_expressions or len(term.match_fields) != 1:
        return False
    return (term.match_fields[0].key, term.match_fields[0].operator) == ("metadata.name", "In")


def words(on: NodeLabels | NodeSelector) -> str:
    """Which nodes, for messages: "nodes with topology.kubernetes.io/zone=a"."""
    found = on if isinstance(on, NodeLabels) else read_selector(on)
    return f"nodes with {found}" if isinstance(found, NodeLabels) else "the nodes that its status selects"
