"""Selectors: of nodes as our kinds and Kubernetes' kinds have them, of labels as kubectl writes them. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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


def selector_of(selector: meta.NodeSelector) -> builtin.NodeSelector:
    """A selector in one of our own kinds as one of Kubernetes'."""
    return msgspec.convert(selector.wire(), builtin.NodeSelector)


Labels = Mapping[str, str]

_SET_BASED = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s!=]+)\s*(?P<operator>==|=|!=)\s*(?P<value>\S*)$")
_EXISTENCE = re.compile(r"^(?P<not>!?)\s*(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)$")
_BETWEEN = re.compile(r",(?![^(]*\))")


def label_selector(text: str) -> Callable[[Labels], bool]:
    """Whether labels are selected by a selector in kubectl's form, such as "app=web,tier in (a, b),!old".

    The empty one selects all. Raises ValueError if it can't be read.
    """
    checks = [_requirement(part.strip()) for part in _BETWEEN.split(text) if part.strip()]
    return lambda labels: all(check(labels) for check in checks)


def _requirement(text: str) -> Callable[[Labels], bool]:
    if match := _SET_BASED.match(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return _among(match["key"], values, match["operator"] == "in")
    if match := _EQUALITY.match(text):
        return _among(match["key"], frozenset({match["value"]}), match["operator"] != "!=")
    if match := _EXISTENCE.match(text):
        key, wanted = match["key"], not match["not"]
        return lambda labels: (key in labels) is wanted
    raise ValueError(f"the label selector {text!r} is not understood")


def _among(key: str, values: frozenset[str], wanted: bool) -> Callable[[Labels], bool]:
    """An object without the label is not among them, so that "not in" selects it."""
    return lambda labels: (labels.get(key) in values) is wanted


def suitable_nodes(class_: ResourceClass) -> builtin.NodeSelector | None:
    """The class's `suitableNodes`; None if every node is."""
    return selector_of(class_.suitable_nodes) if class_.suitable_nodes is not None else None
