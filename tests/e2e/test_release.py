"""A pod is deleted by force while its kubelet is away: its device is handed on when the node has unprepared it."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.cluster.manifests import claim, pod
from tests.cluster.namespace import Namespace
from tests.cluster.nodes import prepared
from tests.cluster.watching import until_one

from parley.api import reasons
from parley.api.models import ResourceClaim
from parley.api.names import OUT_OF_SERVICE_TAINT, RELEASE_RECORD_LABEL, RELEASING_FROM_ANNOTATION
from parley.api.resources import CLAIMS, NODES, PODS
from parley.devcluster import Cluster
from parley.kube.client import Client

pytestmark = pytest.mark.cluster

NODE = "node-a"
ON_NODE = {"kubernetes.io/hostname": NODE}


@pytest.fixture
def kubelet(cluster: Cluster) -> Iterator[str]:
    """The kubelet of node-a; however the test ends, it runs afterwards."""
    name = f"kubelet-{NODE}"
    yield name
    cluster.component(name).launch()


@pytest.fixture
async def in_service(admin: Client) -> AsyncIterator[None]:
    """However the test ends, node-a is in service afterwards."""
    yield
    await taint(admin)


async def taint(admin: Client, *keys: str) -> None:
    """The node has these taints, for effect NoSchedule, and no others of ours."""
    node = await admin.get(NODES.untyped(), NODE)
    others = [t for t in node["spec"].get("taints", []) if t["key"] != OUT_OF_SERVICE_TAINT]
    taints = [*others, *({"key": key, "value": "nodeshutdown", "effect": "NoSchedule"} for key in keys)]
    await admin.patch(NODES.untyped(), NODE, {"spec": {"taints": taints or None}})


async def record(team: Namespace) -> ResourceClaim:
    """The record of a release, as soon as it says what it waits for."""
    for _ in range(150):
        for found in (await team.client.list(CLAIMS, team.name)).items:
            is_record = found.metadata.labels.get(RELEASE_RECORD_LABEL) == "true"
            if is_record and found.status.state == "releasing":
                return found
        await asyncio.sleep(0.2)
    raise AssertionError("no record of a release")


async def releasing(team: Namespace, name: str) -> None:
    """Return when the named claim says that it waits for its node."""
    await until_one(
        team.client, CLAIMS, name, lambda c: c.status.state == "releasing", "is releasing", namespace=team.name
    )


async def delete_by_force(team: Namespace, name: str) -> None:
    await team.client.delete(PODS, name, team.name, grace_period_seconds=0)
    await team.gone(PODS, name)


async def test_a_device_is_handed_on_when_the_kubelet_is_back_and_not_before(
    cluster: Cluster, team: Namespace, kubelet: str
) -> None:
    await team.create(pod("lost", templates={"gpu": "one"}, nodeSelector=ON_NODE))
    await team.runs("lost")
    (uid,) = prepared(cluster.node(NODE))

    cluster.component(kubelet).stop()
    await delete_by_force(team, "lost")
    await team.create(pod("next", templates={"gpu": "one"}, nodeSelector=ON_NODE))

    assert (await record(team)).metadata.annotations[RELEASING_FROM_ANNOTATION] == NODE
    await team.waits("next", reasons.NOTHING_VIABLE)
    await asyncio.sleep(5)
    assert not (await team.client.get(PODS, "next", team.name)).spec.node_name
    assert set(prepared(cluster.node(NODE))) == {uid}
    cluster.component(kubelet).start()
    await team.runs("next", within=180)
    assert uid not in prepared(cluster.node(NODE))


async def test_a_named_claim_tells_what_it_waits_for_and_is_given_to_the_next_pod_then(
    cluster: Cluster, team: Namespace, kubelet: str
) -> None:
    await team.create(claim("mine"), pod("lost", claims={"gpu": "mine"}, nodeSelector=ON_NODE))
    await team.runs("lost")

    cluster.component(kubelet).stop()
    await delete_by_force(team, "lost")
    await releasing(team, "mine")
    await team.create(pod("next", claims={"gpu": "mine"}, nodeSelector=ON_NODE))

    words = await team.waits("next", reasons.RELEASING)
    assert f"a pod that used it on node {NODE} was deleted by force" in words
    cluster.component(kubelet).start()
    await team.runs("next", within=180)


async def test_a_node_that_is_out_of_service_gives_no_receipt_and_owes_none(
    cluster: Cluster, admin: Client, team: Namespace, kubelet: str, in_service: None
) -> None:
    await team.create(claim("mine"), pod("lost", claims={"gpu": "mine"}, nodeSelector=ON_NODE))
    await team.runs("lost")
    cluster.component(kubelet).stop()
    await delete_by_force(team, "lost")
    await releasing(team, "mine")
    await team.create(pod("next", claims={"gpu": "mine"}))
    await team.waits("next", reasons.RELEASING)

    await taint(admin, OUT_OF_SERVICE_TAINT)

    assert (await team.runs("next", within=60)).spec.node_name == "node-b"
    cluster.component(kubelet).start()
    await taint(admin)
    for _ in range(180):
        if not prepared(cluster.node(NODE)):
            break
        await asyncio.sleep(1)
