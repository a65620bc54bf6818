"""Selectors: of nodes and labels as our kinds and Kubernetes' kinds have them, of labels as kubectl writes them.
Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from parley.api import builtin, meta
from parley.api.models import ResourceClass


def node_selector(nodes: Iterable[str]) -> dict[str, Any]:
    """Exactly these nodes: one `matchFields` term per node, as the API wants it (one value a term)."""
    return {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes
        ]
    }


def named_by(selector: builtin.NodeSelector | None) -> tuple[str, ...]:
    """The nodes that a selector made by `node_selector` names."""
    terms = selector.node_selector_terms if selector is not None else []
    fields = (field for term in terms for field in term.match_fields if field.key == "metadata.name")
    return tuple(value for field in fields for value in field.values)


def limited_to(selector: builtin.NodeSelector) -> frozenset[str] | None:
    """The nodes that the selector names, where no other can match: as those of DaemonSets' pods do. None if others
    may, or if it names none."""
    found = set[str]()
    for term in selector.node_selector_terms:
        if not term.match_expressions and not term.match_fields:
            continue
        fields = (field for field in term.match_fields if field.key == "metadata.name" and field.operator == "In")
        if not (names := [frozenset(field.values) for field in fields]):
            return None
        found |= frozenset.intersection(*names)
    return frozenset(found) or None


def selector_of(selector: meta.NodeSelector) -> builtin.NodeSelector:
    """A selector in one of our own kinds as one of Kubernetes'."""
    return msgspec.convert(selector.wire(), builtin.NodeSelector)


def matches(selector: builtin.NodeSelector, node: builtin.Node) -> bool:
    """Whether one of the selector's terms holds for the node."""
    return any(_term_holds(term, node) for term in selector.node_selector_terms)


def _term_holds(term: builtin.NodeSelectorTerm, node: builtin.Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(holds(r, node.metadata.labels) for r in term.match_expressions) and all(
        holds(r, fields) for r in term.match_fields
    )


Labels = Mapping[str, str]

_MOST_INT64 = 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,64}")
_SET_BASED = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s!=]+)\s*(?P<operator>==|=|!=)\s*(?P<value>\S*)$")
_EXISTENCE = re.compile(r"^(?P<not>!?)\s*(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)$")
_BETWEEN = re.compile(r",(?![^(]*\))")


class Requirement(Protocol):
    """One requirement on labels, of our kinds or of Kubernetes'."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> Sequence[str]: ...


class Selector(Protocol):
    """A metav1.LabelSelector, of our kinds or of Kubernetes'."""

    @property
    def match_labels(self) -> Labels: ...
    @property
    def match_expressions(self) -> Sequence[Requirement]: ...


def selects(selector: Selector, labels: Labels) -> bool:
    """Whether an object with these labels is selected: all must hold, so that the empty selector selects all."""
    plain = all(labels.get(name) == value for name, value in selector.match_labels.items())
    return plain and all(holds(requirement, labels) for requirement in selector.match_expressions)


def holds(requirement: Requirement, labels: Labels) -> bool:
    """Whether the labels meet the requirement. Those without the label do, if it is `NotIn` or `DoesNotExist`."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(operator, value, requirement.values)
    return False


def _compares(operator: str, value: str | None, bounds: Sequence[str]) -> bool:
    number, bound = _int64(value or ""), _int64(bounds[0] if bounds else "")
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def _int64(text: str) -> int | None:
    """As Go's strconv.ParseInt reads it: ASCII digits, within 64 bits."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -_MOST_INT64 <= number <= _MOST_INT64 else None


def label_selector(text: str) -> Callable[[Labels], bool]:
    """Whether labels are selected by a selector in kubectl's form, such as "app=web,tier in (a, b),!old".

    The empty one selects all. Raises ValueError if it can't be read.
    """
    requirements = [_requirement(part.strip()) for part in _BETWEEN.split(text) if part.strip()]
    return lambda labels: all(holds(requirement, labels) for requirement in requirements)


def _requirement(text: str) -> Requirement:
    if match := _SET_BASED.match(text):
        values = [value.strip() for value in match["values"].split(",")]
        operator = "In" if match["operator"] == "in" else "NotIn"
        return builtin.NodeSelectorRequirement(match["key"], operator, values)
    if match := _EQUALITY.match(text):
        operator = "NotIn" if match["operator"] == "!=" else "In"
        return builtin.NodeSelectorRequirement(match["key"], operator, [match["value"]])
    if match := _EXISTENCE.match(text):
        return builtin.NodeSelectorRequirement(match["key"], "DoesNotExist" if match["not"] else "Exists")
    raise ValueError(f"the label selector {text!r} is not understood")


def suitable_nodes(class_: ResourceClass) -> builtin.NodeSelector | None:
    """The class's `suitableNodes`; None if every node is."""
    return selector_of(class_.suitable_nodes) if class_.suitable_nodes is not None else None
