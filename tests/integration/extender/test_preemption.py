"""Pods of higher priority evict others only where they could run then; for what others hold, Parley evicts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cluster.manifests import Manifest, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.preemption import ends, holds, may_evict, priority_class, spared
from tests.integration.extender.conftest import CPUS, NODES, Devices, parley_pod

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client

pytestmark = pytest.mark.cluster

MOST = f"{CPUS - 1}"
"""CPUs: two pods that want so many have no room on one node."""


@pytest.fixture
async def urgent(admin: Client) -> AsyncIterator[str]:
    """A priority above the others'."""
    async with priority_class(admin, 1000) as name:
        yield name


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


@pytest.mark.usefixtures("tokens")
async def test_a_pod_evicts_where_its_standalone_driver_allocates_if_that_refuses_where_the_pod_fits(
    team: Namespace, urgent: str
) -> None:
    pool = resource_class("pool", TokensDriver.name, nodePart="None", parameters={"pool": 1, "scope": "Node"})
    await team.create(pool, template("token", "pool"))
    low = [f"low-{node}" for node in NODES[1:]]
    for node in NODES[1:]:
        await team.create(parley_pod(f"low-{node}", cpu=MOST, nodeName=node, terminationGracePeriodSeconds=0))
    await team.create(parley_pod("holder", cpu="4", templates={"token": "token"}))
    assert (await team.bound("holder")).spec.node_name == NODES[0]

    await team.create(parley_pod("vip", cpu="4", templates={"token": "token"}, priorityClassName=urgent))

    node = (await team.bound("vip")).spec.node_name
    assert [name for name in low if not await lives(team, name)] == [f"low-{node}"]


async def test_a_pod_that_was_viable_nowhere_evicts_once_it_is(
    team: Namespace, devices: Devices, crowd: list[str], urgent: str
) -> None:
    """Its scheduler's own filters reject all nodes: it asks where it may evict others, and then no more, whatever
    changes of the pod's annotations."""
    where = {name: (await team.bound(name)).spec.node_name for name in crowd}
    await team.create(template("one"))
    await team.create(parley_pod("vip", cpu=MOST, templates={"gpu": "one"}, priorityClassName=urgent))
    await team.pod("vip", lambda pod: "preemption:" in told(pod), "was tried, preemption too")

    await devices(node_1=1)

    (evicted,) = (name for name, node in where.items() if node == "node-1")
    await team.pod(evicted, lambda pod: pod.metadata.deletion_timestamp is not None, "is evicted")
    await team.delete(PODS, evicted)
    assert (await team.bound("vip")).spec.node_name == "node-1"


def holder(name: str, **more: Any) -> Manifest:
    return parley_pod(name, templates={"gpu": "one"}, labels={"app": name}, **more)


async def test_of_holders_of_both_schedulers_the_one_that_no_budget_spares_is_evicted(
    team: Namespace, admin: Client, devices: Devices, urgent: str
) -> None:
    """And another pod gets nothing of what is kept for the preemptor."""
    await devices(node_0=1, node_1=1)
    await team.create(resource_class("taken", preemption="LowerPriority"), template("one", "taken"))
    await holds(team, holder("spared"))
    await holds(team, pod("lowest", templates={"gpu": "one"}))
    await spared(team, "spared")
    where = (await team.bound("lowest")).spec.node_name
    async with may_evict(admin):
        await team.create(holder("urgent", priorityClassName=urgent))
        await team.waits("urgent", reasons.PREEMPTING)
        await team.create(holder("late"), pod("late-too", templates={"gpu": "one"}))
        for name in ("late", "late-too"):
            assert "is kept for the pod that" in await team.waits(name, reasons.NOTHING_VIABLE)
        await ends(team, "lowest")
        assert f"Preempted by pod {team.name}/urgent" in await team.told("lowest", reasons.PREEMPTED)
        assert (await team.bound("urgent")).spec.node_name == where

    assert await lives(team, "spared")
    assert not (await team.client.get(PODS, "late", team.name)).spec.node_name
    assert not (await team.client.get(PODS, "late-too", team.name)).spec.node_name


async def test_a_holder_that_has_the_cpu_too_is_evicted_by_parley(
    team: Namespace, admin: Client, devices: Devices, crowd: list[str], urgent: str
) -> None:
    """No node passes the scheduler's own filters: it asks where it may evict, which is nowhere."""
    (evicted, *others) = crowd
    where = (await team.bound(evicted)).spec.node_name
    await team.create(resource_class("taken", preemption="LowerPriority"), template("one", "taken"))
    await team.delete(PODS, evicted)
    await devices(**{where.replace("-", "_"): 1})
    await holds(team, holder("holder", cpu=MOST))
    async with may_evict(admin):
        await team.create(holder("vip", cpu=MOST, priorityClassName=urgent))
        await ends(team, "holder")
        assert f"Preempted by pod {team.name}/vip" in await team.told("holder", reasons.PREEMPTED)
        assert (await team.bound("vip")).spec.node_name == where

    assert [await lives(team, name) for name in others] == [True, True]
