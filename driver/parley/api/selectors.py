"""Selectors of nodes: as our kinds have them, as Kubernetes' kinds have them, and as they are written. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from parley.api import builtin, meta


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
