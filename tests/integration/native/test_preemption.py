"""The unmodified scheduler preempts for pods with claims, on nodes where Parley allocated for them; claims
themselves Parley has evicted for, where their class says so."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from tests.cluster.manifests import Manifest, container, pod, resource_class, template
from tests.cluster.namespace import Namespace, devices_of
from tests.cluster.preemption import ends, holds, may_evict, priority_class, spared
from tests.integration.native.conftest import NODES, Devices, Parley

from parley.api import reasons
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client

pytestmark = pytest.mark.cluster

FULL = "30"
"""CPUs, of a node's 32."""


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


def holder(name: str, **spec: Any) -> Manifest:
    return pod(name, templates={"gpu": "one"}, labels={"app": name}, **spec)


async def left(team: Namespace) -> set[str]:
    return {found.metadata.name for found in (await team.client.list(PODS, team.name)).items}


@pytest.mark.parametrize(
    ("full", "where"),
    [(NODES, NODES[1:2]), (NODES[1:2], NODES[1:2]), (NODES[1:], NODES[1:])],
    ids=["every node is full", "others have room", "one has room, and no device"],
)
async def test_one_ordinary_pod_is_evicted_for_one_with_a_claim(
    team: Namespace, devices: Devices, urgent: str, full: Sequence[str], where: Sequence[str]
) -> None:
    """Where another node has room but no device, the scheduler clears the allocation before it evicts."""
    await devices(**{node.replace("-", "_"): 1 for node in where})
    ordinary = [with_cpu(f"on-{node}", FULL, nodeName=node) for node in full]
    await team.create(template("one"), *ordinary)
    await team.create(with_cpu("urgent", "4", claims={"gpu": "one"}, priorityClassName=urgent))

    node = (await team.bound("urgent")).spec.node_name
    assert node in where
    assert await left(team) == {"urgent", *(f"on-{other}" for other in full if other != node)}


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("full", [NODES, NODES[1:]], ids=["every node is full", "one has room, and no token"])
async def test_one_ordinary_pod_is_evicted_for_one_whose_claim_a_standalone_driver_allocates(
    team: Namespace, urgent: str, full: Sequence[str]
) -> None:
    """Where another node has room, the scheduler clears the allocation before it evicts."""
    pool = resource_class("pool", TokensDriver.name, nodePart="None", parameters={"pool": 1, "scope": "Node"})
    await team.create(pool, template("token", "pool"))
    await team.create(*(with_cpu(f"on-{node}", FULL, nodeName=node) for node in full))
    if full != NODES:
        await team.create(with_cpu("holder", "4", claims={"token": "token"}))
        assert (await team.bound("holder")).spec.node_name not in full
    staying = await left(team)
    await team.create(with_cpu("urgent", "4", claims={"token": "token"}, priorityClassName=urgent))

    node = (await team.bound("urgent")).spec.node_name
    assert await left(team) == {"urgent", *staying} - {f"on-{node}"}


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


async def test_of_four_holders_the_lowest_that_no_budget_spares_is_evicted(
    team: Namespace, admin: Client, parley: Parley, devices: Devices, urgent: str, ordinary: str
) -> None:
    """Once the controller may evict."""
    await devices(node_0=2, node_1=2)
    await team.create(resource_class("taken", preemption="LowerPriority"), template("one", "taken"))
    for name in ("first", "second"):
        await holds(team, holder(name, priorityClassName=ordinary))
    for name in ("spared", "lowest"):
        await holds(team, holder(name))
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
