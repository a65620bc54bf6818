"""A claim that can be used in a zone, for pods of the second scheduler: nodes count once they are in it."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.cluster.manifests import claim, resource_class
from tests.cluster.namespace import Namespace
from tests.cluster.zones import ZONE, ZoneTokens, place
from tests.integration.extender.conftest import NODES, OPTIONS, parley_pod
from tests.integration.extender.service import Service

from parley.api import reasons
from parley.api.resources import NODES as NODE_OBJECTS
from parley.api.resources import PODS
from parley_devcluster import Cluster, Component
from parley_devcluster.second_scheduler import free_address

pytestmark = pytest.mark.cluster

WAITING = ("second", "third", "fourth")


@pytest.fixture
def zones(
    cluster: Cluster, team: Namespace, controller: Component, controller_account: Path, service: Service
) -> Iterator[Component]:
    """A controller with the driver, in the place of the one that all tests share."""
    address, others = free_address(), service.backends
    program = (sys.executable, "-m", "parley", "controller", "--kubeconfig", str(controller_account))
    driver = ("--driver", f"{ZoneTokens.__module__}:{ZoneTokens.__name__}")
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH"))))
    controller.stop()
    serving = cluster.add_program(
        "zones-controller",
        [*program, *driver, "--extender-address", address, *OPTIONS],
        environment={"PYTHONPATH": path},
    )
    service.backends = [address]
    service.forget()
    try:
        service.wait_ready()
        yield serving
    finally:
        serving.stop()
        controller.start()
        service.backends = others
        service.forget()
        service.wait_ready()


@pytest.fixture
async def late(team: Namespace, zones: Component, cluster: Cluster) -> AsyncIterator[str]:
    """A node that was added to zone b. Node-0 is in zone a, and all others are in zone b."""
    for node in NODES:
        await place(team.client, node, "a" if node == "node-0" else "b")
    (name,) = cluster.add_fake_nodes(1, prefix="late-", labels={ZONE: "b"})
    yield name
    await team.client.delete(NODE_OBJECTS, name)
    for node in NODES:
        await place(team.client, node, None)


async def unbound(team: Namespace, *names: str) -> None:
    """Each of the pods was tried and its user told why it waits; none is bound."""
    for name in names:
        told = await team.waits(name, reasons.NO_CANDIDATES)
        assert f"Claim {team.name}/ours is allocated on nodes with {ZONE}=a" in told
        assert not (await team.client.get(PODS, name, team.name)).spec.node_name


async def test_users_that_come_later_land_on_a_node_that_comes_into_the_zone_and_on_no_other(
    team: Namespace, zones: Component, service: Service, late: str
) -> None:
    fields = {"shareable": True, "nodePart": "None", "parameters": {"pool": 9}}
    await team.create(resource_class("seats", ZoneTokens.name, **fields), claim("ours", "seats"))
    await team.create(parley_pod("first", claims={"seat": "ours"}, nodeSelector={ZONE: "a"}))
    assert (await team.bound("first")).spec.node_name == "node-0"

    await place(team.client, "node-0", "a", cordoned=True)
    zones.kill()
    zones.start()
    service.forget()
    service.wait_ready()
    await team.create(*(parley_pod(name, claims={"seat": "ours"}) for name in WAITING))
    await team.create(parley_pod("beside", nodeSelector={"kubernetes.io/hostname": late}))
    await team.bound("beside")
    await unbound(team, *WAITING)

    await place(team.client, late, "a")
    for name in WAITING:
        assert (await team.bound(name)).spec.node_name == late

    await place(team.client, late, "b")
    await team.create(parley_pod("last", claims={"seat": "ours"}))
    await unbound(team, "last")
    await place(team.client, "node-0", "a")
    assert (await team.bound("last")).spec.node_name == "node-0"
    for name in ("first", "last", "beside", *WAITING):
        await team.delete(PODS, name)
    await team.parley_claim("ours", lambda one: one.status.allocation is None, "holds nothing")
