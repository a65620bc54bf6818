"""Takes a hostile user's namespace away, whatever finalizers and owners it left on its objects."""

import time
from typing import Any

from parley.devcluster import Cluster
from parley.devcluster.api import ApiError

_LIMIT = 120.0
_FOREIGN = "example.com/mine"
_COLLECTIONS = (
    "/api/v1/namespaces/{}/pods",
    "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
    "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates",
    "/apis/parley.dev/v1alpha1/namespaces/{}/resourceclaims",
    "/apis/parley.dev/v1alpha1/namespaces/{}/resourceclaimtemplates",
)


def sweep(cluster: Cluster, namespace: str) -> None:
    """Delete the namespace and wait until it is gone: finalizers are lifted that are the user's own, no others.

    Raises AssertionError if something stays, with what it is.
    """
    _tolerant(cluster, "DELETE", f"/api/v1/namespaces/{namespace}")
    deadline = time.monotonic() + _LIMIT
    while (left := _left(cluster, namespace)) and time.monotonic() < deadline:
        for path, finalizers in left.items():
            if _FOREIGN in finalizers:
                kept = [finalizer for finalizer in finalizers if finalizer != _FOREIGN]
                _tolerant(cluster, "PATCH", path, {"metadata": {"finalizers": kept}})
            if "/pods/" in path:
                _tolerant(cluster, "DELETE", f"{path}?gracePeriodSeconds=0")
        time.sleep(0.5)
    assert not left, f"left behind: {left}"


def _left(cluster: Cluster, namespace: str) -> dict[str, list[str]]:
    """Paths of the objects that are still there, with their finalizers."""
    found: dict[str, list[str]] = {}
    for collection in _COLLECTIONS:
        path = collection.format(namespace)
        for item in cluster.api.get(path)["items"]:
            found[f"{path}/{item['metadata']['name']}"] = item["metadata"].get("finalizers", [])
    return found


def _tolerant(cluster: Cluster, method: str, path: str, body: Any = None) -> None:
    """One request; what is gone or changing meanwhile comes round again."""
    media_type = "application/merge-patch+json"
    try:
        cluster.api.request(method, path, body, media_type)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
