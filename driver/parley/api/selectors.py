"""Evaluates node and label selectors of our kinds and Kubernetes' kinds, and label selectors in kubectl's form.
Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec

from parley.api import builtin, meta
from parley.api.models import ResourceClass


def node_selector(nodes: Iterable[str]) -> dict[str, Any]:
    """The selector of exactly these nodes: one `matchFields` term for each, as the API allows one value a term."""
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
    """The nodes that the selector names if it can match no other, as the selectors of DaemonSets' pods do; None if
    it may match others, or names none."""
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
    """Converts a selector in one of our own kinds to Kubernetes' type."""
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


class NodeMatcher:
    """Evaluates a selector for many nodes, with the results of `matches`. Compiles the terms at the first node:
    most long selectors name one value of a few labels in each term."""

    def __init__(self, selector: builtin.NodeSelector) -> None:
        self._selector = selector
        self._names: frozenset[str] | None = None
        self._values: dict[str, set[str]] = {}
        """By label, the values of terms with no other requirement."""
        self._terms: list[_Term] = []

    def matches(self, node: builtin.Node) -> bool:
        """Whether one of the selector's terms holds for the node."""
        names = self._names if self._names is not None else self._compile()
        name, labels = node.metadata.name, node.metadata.labels
        if name in names or any(labels.get(key) in values for key, values in self._values.items()):
            return True
        return any(term.holds(name, labels) for term in self._terms)

    def _compile(self) -> frozenset[str]:
        names = set[str]()
        number = lru_cache(_REMEMBERED)(_int64)
        for term in self._selector.node_selector_terms:
            of_labels, of_fields = term.match_expressions, term.match_fields
            if len(of_labels) == 1 and not of_fields and of_labels[0].operator == "In":
                self._values.setdefault(of_labels[0].key, set()).update(of_labels[0].values)
            elif not of_labels and len(of_fields) == 1 and _names_nodes(of_fields[0]):
                names.update(of_fields[0].values)
            elif of_labels or of_fields:
                self._terms.append(_Term.of(term, number))
        self._names = frozenset(names)
        return self._names


def _names_nodes(field: builtin.NodeSelectorRequirement) -> bool:
    return field.key == "metadata.name" and field.operator == "In"


Labels = Mapping[str, str]
Check = Callable[[str | None], bool]
"""Whether the value of a label (None: the label is absent) meets a requirement."""


class _Term(NamedTuple):
    """A compiled term: its checks of labels, and of fields, all of which must hold."""

    of_labels: Sequence[tuple[str, Check]]
    of_fields: Sequence[tuple[str, Check]]

    @staticmethod
    def of(term: builtin.NodeSelectorTerm, number: Callable[[str], int | None]) -> "_Term":
        found = ([(r.key, _check(r, number)) for r in of] for of in (term.match_expressions, term.match_fields))
        return _Term(*found)

    def holds(self, name: str, labels: Labels) -> bool:
        """Whether the term holds for the node with that name and these labels."""
        for key, check in self.of_labels:
            if not check(labels.get(key)):
                return False
        return all(check(name if key == "metadata.name" else None) for key, check in self.of_fields)


def _check(requirement: "Requirement", number: Callable[[str], int | None]) -> Check:
    """Compiles the requirement; `number` parses integers, cached for later terms about the same label."""
    values = frozenset(requirement.values)
    bound = number(requirement.values[0]) if requirement.values else None

    def compares(value: str | None) -> bool:
        found = number(value) if value is not None else None
        if found is None or bound is None:
            return False
        return found > bound if requirement.operator == "Gt" else found < bound

    checks: Mapping[str, Check] = {
        "In": values.__contains__,
        "NotIn": lambda value: value not in values,
        "Exists": lambda value: value is not None,
        "DoesNotExist": lambda value: value is None,
        "Gt": compares,
        "Lt": compares,
    }
    return checks.get(requirement.operator, lambda _: False)


_REMEMBERED = 256
_MOST_INT64 = 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,64}")
_SET_BASED = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s!=]+)\s*(?P<operator>==|=|!=)\s*(?P<value>\S*)$")
_EXISTENCE = re.compile(r"^(?P<not>!?)\s*(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)$")
_BETWEEN = re.compile(r",(?![^(]*\))")


class Requirement(Protocol):
    """A requirement on labels, of our kinds or of Kubernetes'."""

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
    """Whether an object with these labels is selected: all requirements hold, so an empty selector selects all."""
    plain = all(labels.get(name) == value for name, value in selector.match_labels.items())
    return plain and all(holds(requirement, labels) for requirement in selector.match_expressions)


def holds(requirement: Requirement, labels: Labels) -> bool:
    """Whether the labels meet the requirement. `NotIn` and `DoesNotExist` also hold without the label."""
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
    """The integer as Go's strconv.ParseInt parses it: ASCII digits, within 64 bits; None if it is none."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -_MOST_INT64 <= number <= _MOST_INT64 else None


def label_selector(text: str) -> Callable[[Labels], bool]:
    """A predicate on labels, for a selector in kubectl's form, such as "app=web,tier in (a, b),!old".

    An empty selector selects all. Raises ValueError if it can't be parsed.
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
    """The class's `suitableNodes`; None if every node is suitable."""
    return selector_of(class_.suitable_nodes) if class_.suitable_nodes is not None else None
