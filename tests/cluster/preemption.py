"""What tests of preemption need: priorities, the right to evict, pods that hold something, their budgets."""

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.cluster.manifests import Manifest
from tests.cluster.namespace import Namespace
from tests.cluster.watching import until_one

from parley.api.resources import PODS, Resource
from parley.kube.client import Client
from parley.kube.memory.evictions import BUDGETS

PRIORITY_CLASSES: Resource[Any] = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, dict
)
CLUSTER_ROLES: Resource[Any] = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, dict
)
CLUSTER_ROLE_BINDINGS: Resource[Any] = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, dict
)


@asynccontextmanager
async def priority_class(admin: Client, value: int) -> AsyncGenerator[str, None]:
    """Its name."""
    name = f"urgent-{uuid.uuid4().hex[:6]}"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await admin.create(PRIORITY_CLASSES, {**kind, "metadata": {"name": name}, "value": value})
    yield name
    await admin.delete(PRIORITY_CLASSES, name)


@asynccontextmanager
async def may_evict(admin: Client) -> AsyncGenerator[None, None]:
    """What the chart's `preemption.enabled` gives."""
    name = f"evicts-{uuid.uuid4().hex[:6]}"
    rule = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    await admin.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    account = {"kind": "ServiceAccount", "name": "parley-controller", "namespace": "parley-system"}
    await admin.create(CLUSTER_ROLE_BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [account]})
    yield
    await admin.delete(CLUSTER_ROLE_BINDINGS, name)
    await admin.delete(CLUSTER_ROLES, name)


async def holds(team: Namespace, manifest: Manifest) -> None:
    """The pod has what it asks for and runs, as far as the API server knows."""
    name = manifest["metadata"]["name"]
    await team.create(manifest)
    await team.bound(name)
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "conditions": conditions}
    await team.client.patch(PODS, name, {"status": status}, team.name, subresource="status")


async def spared(team: Namespace, name: str) -> None:
    """A disruption budget keeps the pod, and the API server knows."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    await team.client.create(BUDGETS, {"metadata": {"name": name}, "spec": spec}, team.name)

    def counted(budget: Any) -> bool:
        status = budget.get("status", {})
        return bool(status.get("currentHealthy") == 1 and status.get("disruptionsAllowed") == 0)

    await until_one(team.client, BUDGETS, name, counted, "is counted", namespace=team.name)


async def ends(team: Namespace, name: str) -> None:
    """What the kubelet does with a pod that is being deleted."""
    await team.pod(name, lambda found: bool(found.metadata.deletion_timestamp), "is evicted")
    await team.client.patch(PODS, name, {"status": {"phase": "Succeeded"}}, team.name, subresource="status")
    await team.client.delete(PODS, name, team.name, grace_period_seconds=0)
