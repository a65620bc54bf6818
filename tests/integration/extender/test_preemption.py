"""Pods of higher priority evict others only where they could run then."""

import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from tests.cluster.manifests import template
from tests.cluster.namespace import Namespace
from tests.integration.extender.conftest import CPUS, NODES, Devices, parley_pod

from parley.api.builtin import Pod
from parley.api.resources import PODS, Resource
from parley.kube.client import Client

pytestmark = pytest.mark.cluster

PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, dict[str, Any]
)
MOST = f"{CPUS - 1}"
"""CPUs: two pods that want so many have no room on one node."""


@pytest.fixture
async def urgent(admin: Client) -> AsyncIterator[str]:
    """A priority above the others'."""
    name = f"urgent-{uuid.uuid4().hex[:6]}"
    await admin.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1000})
    yield name
    await admin.delete(PRIORITY_CLASSES, name)


@pytest.fixture
async def crowd(team: Namespace) -> list[str]:
    """A pod on each node that leaves no room for another one."""
    names = [f"low-{node}" for node in NODES]
    for name in names:
        await team.create(parley_pod(name, cpu=MOST))
        await team.bound(name)
    return names


def told(pod: Pod) -> str:
    return " ".join(condition.message for condition in pod.status.conditions if condition.type == "PodScheduled")


async def lives(team: Namespace, name: str) -> bool:
    pods = (await team.client.list(PODS, team.name, field_selector=f"metadata.name={name}")).items
    return any(pod.metadata.deletion_timestamp is None for pod in pods)


async def test_a_pod_that_is_viable_nowhere_evicts_nobody(
    team: Namespace, devices: Devices, crowd: list[str], urgent: str
) -> None:
    await team.create(template("one"))

    await team.create(parley_pod("vip", cpu=MOST, templates={"gpu": "one"}, priorityClassName=urgent))
    vip = await team.pod("vip", lambda pod: "preemption:" in told(pod), "was tried, preemption too")

    assert not vip.status.nominated_node_name
    assert [await lives(team, name) for name in crowd] == [True] * len(crowd)


async def test_a_pod_evicts_only_where_it_is_viable(
    team: Namespace, devices: Devices, crowd: list[str], urgent: str
) -> None:
    await devices(node_1=1)
    await team.create(template("one"))
    where = {name: (await team.bound(name)).spec.node_name for name in crowd}

    await team.create(parley_pod("vip", cpu=MOST, templates={"gpu": "one"}, priorityClassName=urgent))
    (evicted,) = (name for name, node in where.items() if node == "node-1")
    await team.pod(evicted, lambda pod: pod.metadata.deletion_timestamp is not None, "is evicted")
    await team.delete(PODS, evicted)

    assert (await team.bound("vip")).spec.node_name == "node-1"
    assert [await lives(team, name) for name in crowd if name != evicted] == [True, True]
