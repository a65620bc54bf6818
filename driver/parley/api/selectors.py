"""Selectors of nodes: as our kinds have them, as Kubernetes' kinds have them, and as they are written. Pure."""

from collections.abc import Iterable
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


def suitable_nodes(class_: ResourceClass) -> builtin.NodeSelector | None:
    """The class's `suitableNodes`; None if every node is."""
    return selector_of(class_.suitable_nodes) if class_.suitable_nodes is not None else None
