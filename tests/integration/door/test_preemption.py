"""The unmodified scheduler preempts for pods with claims, on nodes where Parley allocated for them; claims
themselves Parley has evicted for, where their class says so."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cluster.manifests import container, pod, resource_class, template
from tests.cluster.namespace import Namespace, devices_of
from tests.cluster.watching import until_one
from tests.integration.door.conftest import NODES, Devices, Parley

from parley.api import reasons
from parley.api.resources import BUILTIN_CLAIMS, PODS, Resource
from parley.kube.client import Client
from parley.kube.memory.evictions import BUDGETS

pytestmark = pytest.mark.cluster

PRIORITY_CLASSES: Resource[Any] = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, dict
)
CLUSTER_ROLES: Resource[Any] = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, dict
)
CLUSTER_ROLE_BINDINGS: Resource[Any] = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, dict
)
FULL = "30"
"""CPUs, of a node's 32."""


@asynccontextmanager
async def priority_class(admin: Client, value: int) -> AsyncGenerator[str, None]:
    name = f"urgent-{uuid.uuid4().hex[:6]}"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await admin.create(PRIORITY_CLASSES, {**kind, "metadata": {"name": name}, "value": value})
    yield name
    await admin.delete(PRIORITY_CLASSES, name)


@pytest.fixture
async def urgent(admin: Client) -> AsyncIterator[str]:
    """A PriorityClass above the pods that name none."""
    async with priority_class(admin, 1000) as name:
        yield name


@pytest.fixture
async def ordinary(admin: Client) -> AsyncIterator[str]:
    """A PriorityClass between."""
    async with priority_class(admin, 100) as name:
        yield name


def with_cpu(name: str, cpu: str, *, claims: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    uses = [{"name": entry} for entry in claims or {}]
    main = container("main", "true", resources={"requests": {"cpu": cpu}, "claims": uses})
    return pod(name, templates=claims, **{"containers": [main], "terminationGracePeriodSeconds": 0, **spec})


async def left(team: Namespace) -> set[str]:
    return {found.metadata.name for found in (await team.client.list(PODS, team.name)).items}


@pytest.mark.parametrize("full", [NODES, NODES[1:2]], ids=["every node is full", "others have room"])
async def test_an_ordinary_pod_is_evicted_for_one_with_a_claim(
    team: Namespace, devices: Devices, urgent: str, full: Sequence[str]
) -> None:
    """Where another node has room but no device, the scheduler clears the allocation before it evicts."""
    await devices(node_1=1)
    ordinary = [with_cpu(f"on-{node}", FULL, nodeName=node) for node in full]
    await team.create(template("one"), *ordinary)
    await team.create(with_cpu("urgent", "4", claims={"gpu": "one"}, priorityClassName=urgent))

    assert (await team.bound("urgent")).spec.node_name == "node-1"
    assert await left(team) == {"urgent", *(f"on-{node}" for node in full if node != "node-1")}


async def test_while_the_evicted_pod_takes_its_time_the_claim_is_not_cleared_again_and_again(
    team: Namespace, devices: Devices, urgent: str
) -> None:
    await devices(node_1=1)
    await team.create(template("one"), with_cpu("slow", FULL, nodeName="node-1", terminationGracePeriodSeconds=60))
    await team.create(with_cpu("urgent", "4", claims={"gpu": "one"}, priorityClassName=urgent))
    await team.pod("slow", lambda found: bool(found.metadata.deletion_timestamp), "is evicted")
    await asyncio.sleep(2)
    (before,) = await team.mirrors("urgent")
    await asyncio.sleep(5)
    (after,) = await team.mirrors("urgent")
    assert after.metadata.resource_version == before.metadata.resource_version

    await team.client.delete(PODS, "slow", team.name, grace_period_seconds=0)
    assert (await team.bound("urgent")).spec.node_name == "node-1"
    (mirror,) = await team.mirrors("urgent")
    assert {device.pool for device in devices_of(mirror)} == {"node-1"}


async def test_nobody_is_evicted_where_the_driver_has_nothing_left(
    team: Namespace, devices: Devices, urgent: str
) -> None:
    await devices(node_1=1)
    await team.create(template("one"), pod("holder", templates={"gpu": "one"}, priorityClassName=urgent))
    await team.bound("holder")
    await team.create(*(with_cpu(f"on-{node}", FULL, nodeName=node) for node in NODES))
    await team.create(with_cpu("urgent", "4", claims={"gpu": "one"}, priorityClassName=urgent))

    await team.waits("urgent", "NothingViable")
    await asyncio.sleep(3)
    assert await left(team) == {"holder", "urgent", *(f"on-{node}" for node in NODES)}
    assert all(m.status.allocation is None for m in await team.mirrors("urgent"))
    assert len((await team.client.list(BUILTIN_CLAIMS, team.name)).items) == 2


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


async def holds(team: Namespace, name: str, **spec: Any) -> None:
    """A pod that has a device and runs, as far as the API server knows."""
    await team.create(pod(name, templates={"gpu": "one"}, labels={"app": name}, **spec))
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


async def test_of_four_holders_the_lowest_that_no_budget_spares_is_evicted(
    team: Namespace, admin: Client, parley: Parley, devices: Devices, urgent: str, ordinary: str
) -> None:
    """Once the controller may evict."""
    await devices(node_0=2, node_1=2)
    await team.create(resource_class("taken", preemption="LowerPriority"), template("one", "taken"))
    for name in ("first", "second"):
        await holds(team, name, priorityClassName=ordinary)
    for name in ("spared", "lowest"):
        await holds(team, name)
    await spared(team, "spared")
    await team.create(pod("urgent", templates={"gpu": "one"}, priorityClassName=urgent))
    message = await team.waits("urgent", reasons.EVICTION_FORBIDDEN)
    assert "lacks the right to create pods/eviction. Install the chart with preemption.enabled=true" in message

    async with may_evict(admin):
        await parley.kill()
        await parley.start()
        await ends(team, "lowest")
        assert f"Preempted by pod {team.name}/urgent" in await team.told("lowest", reasons.PREEMPTED)
        await team.bound("urgent")

    assert await left(team) == {"first", "second", "spared", "urgent"}
