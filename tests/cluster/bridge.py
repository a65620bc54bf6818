"""The bridge of the chart on a control plane, and pods as Tekton's controller made them."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.raw import raw
from tests.cluster.starting import DEPLOY

from parley_devcluster import Cluster, manifests

Pod = dict[str, Any]

OPTED_IN = {"parley.dev/bridge": "enabled"}
"""Label of a namespace."""

_DATA = Path(__file__).parents[1] / "data" / "tekton-pods.yaml"
_ACTIVE_SECONDS = 60.0


@contextmanager
def bridge(cluster: Cluster, namespace: str) -> Generator[None, None, None]:
    """The bridge is in force within the block. The namespace has opted in: its pods show that it is."""
    rendered = manifests.template(DEPLOY, {"bridge": {"enabled": True}}, "--show-only", "templates/bridge.yaml")
    cluster.kubectl("apply", "-f", "-", stdin=rendered)
    try:
        _until_active(cluster, namespace)
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=rendered)


def tekton_pods() -> list[Pod]:
    """Of a run that asks for a workspace, and of one that does not."""
    return [still(pod) for pod in yaml.safe_load_all(_DATA.read_text())]


def still(pod: Pod) -> Pod:
    """The pod without a token's volume, whose name is drawn."""
    return {**pod, "spec": {**pod["spec"], "automountServiceAccountToken": False}}


def _until_active(cluster: Cluster, namespace: str) -> None:
    """New policies take a moment, and each by itself."""
    pod, _ = tekton_pods()
    annotations = {"parley.dev/workspace": "src", "claims.parley.dev/gpu": "one"}
    asking = {**pod, "metadata": {**pod["metadata"], "namespace": namespace, "annotations": annotations}}
    end = time.monotonic() + _ACTIVE_SECONDS
    while time.monotonic() < end:
        made = raw(cluster).post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", asking)
        if len(made["spec"].get("resourceClaims", ())) == 2:
            return
        time.sleep(0.5)
    raise AssertionError("the bridge does nothing")
