"""What a cluster has: objects of every resource that its API server lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.cluster.raw import raw

from parley_devcluster import Cluster

_REPORTS = {"events", "events.events.k8s.io"}

Inventory = Mapping[str, str]
"""The resource of each object, such as `resourceclaims.parley.dev`, by its UID."""


def inventory(cluster: Cluster) -> Inventory:
    """All objects in all namespaces and outside of them, except events."""
    found = {}
    with raw(cluster).kept_open():
        for resource, path in _listed(cluster):
            for item in raw(cluster).get(path)["items"]:
                if uid := item["metadata"].get("uid"):
                    found[uid] = resource
    return found


def added(before: Inventory, after: Inventory) -> Counter[str]:
    """How many objects of each resource are new."""
    return Counter(resource for uid, resource in after.items() if uid not in before)


def _listed(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Name and path of each resource that can be listed, in the version that its group prefers."""
    for group, path in _groups(cluster):
        for one in raw(cluster).get(path)["resources"]:
            name = f"{one['name']}.{group}" if group else one["name"]
            if "list" in one["verbs"] and name not in _REPORTS:
                yield name, f"{path}/{one['name']}"


def _groups(cluster: Cluster) -> Iterator[tuple[str, str]]:
    yield "", "/api/v1"
    for group in raw(cluster).get("/apis")["groups"]:
        yield group["name"], f"/apis/{group['preferredVersion']['groupVersion']}"
