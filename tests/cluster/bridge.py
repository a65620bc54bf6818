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

OTHER_RUN = {"example.com/run": "nightly-7", "example.com/run-uid": "7f3e"}
"""Labels of a pod of another system."""

_RUNS = [{"name": "builds", "label": "example.com/run", "uidLabel": "example.com/run-uid"}]
_DATA = Path(__file__).parents[1] / "data" / "tekton-pods.yaml"
_ACTIVE_SECONDS = 60.0


@contextmanager
def bridge(cluster: Cluster, namespace: str) -> Generator[None, None, None]:
    """The bridge is in force within the block. The namespace has opted in: its pods show that it is."""
    values = {"bridge": {"enabled": True, "runs": _RUNS}}
    rendered = manifests.template(DEPLOY, values, "--show-only", "templates/bridge.yaml")
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
    end = time.monotonic() + _ACTIVE_SECONDS
    for labels in (pod["metadata"]["labels"], OTHER_RUN):
        meta = {"name": "asks", "namespace": namespace, "annotations": annotations, "labels": labels}
        while _added(cluster, {**pod, "metadata": meta}) < 2:
            assert time.monotonic() < end, "the bridge does nothing"
            time.sleep(0.5)


def _added(cluster: Cluster, pod: Pod) -> int:
    made = raw(cluster).post(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All", pod)
    return len(made["spec"].get("resourceClaims", ()))
