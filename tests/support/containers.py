"""Containers of pods that tests make."""

from collections.abc import Mapping, Sequence
from typing import Any


def requesting(**amounts: int | str) -> list[dict[str, Any]]:
    """One container that requests so much of each resource."""
    requests = {name: str(amount) for name, amount in amounts.items()}
    return [{"name": "main", "image": "none", "resources": {"requests": requests}}]


def using(containers: Sequence[Mapping[str, Any]], entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The containers, each of which uses all of these entries of its pod's claims."""
    claims = [{"name": entry["name"]} for entry in entries]
    return [{**one, "resources": {**one.get("resources", {}), "claims": claims}} for one in containers]
