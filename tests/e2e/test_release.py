"""A pod is deleted by force while its kubelet is away: its device is handed on when the node has unprepared it."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

import pytest
from tests.cluster.manifests import claim, pod
from tests.cluster.namespace import Namespace
from tests.cluster.nodes import prepared
from tests.cluster.watching import until, until_one
from tests.support.conditions import ready

from parley.api import reasons
from parley.api.models import ClaimRelease
from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIM_RELEASES, CLAIMS, NODES, PODS
from parley.kube.client import Client
from parley_devcluster import Cluster, Node
from parley_devcluster.component import Component

pytestmark = pytest.mark.cluster

LEAVES, RETURNS = "node-a", "node-b"
"""Of the one the administrator says that it is out of service; of the other nobody says anything."""


def on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


@pytest.fixture
def kubelets(cluster: Cluster) -> Iterator[Mapping[str, Component]]:
    """By node; however the test ends, they run afterwards."""
    found = {name: cluster.component(f"kubelet-{name}") for name in (LEAVES, RETURNS)}
    yield found
    for kubelet in found.values():
        kubelet.launch()


@pytest.fixture
async def in_service(admin: Client) -> AsyncIterator[None]:
    """However the test ends, the node is in service afterwards."""
    yield
    await taint(admin)


async def taint(admin: Client, *keys: str) -> None:
    """The node has these taints, for effect NoSchedule, and no others of ours."""
    node = await admin.get(NODES.untyped(), LEAVES)
    others = [t for t in node["spec"].get("taints", []) if t["key"] != OUT_OF_SERVICE_TAINT]
    taints = [*others, *({"key": key, "value": "nodeshutdown", "effect": "NoSchedule"} for key in keys)]
    await admin.patch(NODES.untyped(), LEAVES, {"spec": {"taints": taints or None}})


async def release_of(team: Namespace, claim_uid: str) -> ClaimRelease:
    """What the claim's node has to answer, as soon as it may."""

    def found(releases: Iterable[ClaimRelease]) -> list[ClaimRelease]:
        return [r for r in releases if r.spec.claim.uid == claim_uid and r.status.allocation_cleared]

    seen = await until(team.client, CLAIM_RELEASES, lambda seen: bool(found(seen.values())), "a release")
    return found(seen.values())[0]


async def releasing(team: Namespace, name: str) -> None:
    """Return when the named claim says that it waits for its node."""
    await until_one(
        team.client, CLAIMS, name, lambda c: ready(c) == "Releasing", "is releasing", namespace=team.name
    )


async def delete_by_force(team: Namespace, name: str) -> None:
    await team.client.delete(PODS, name, team.name, grace_period_seconds=0)
    await team.gone(PODS, name)


async def unprepared(node: Node) -> None:
    for _ in range(180):
        if not prepared(node):
            return
        await asyncio.sleep(1)
    raise AssertionError(f"{node.name} still has prepared {prepared(node)}")


async def leave(team: Namespace, admin: Client, kubelet: Component) -> None:
    """A node that is out of service gives no receipt and owes none. Then it is back."""
    await team.create(claim("moves"), pod("left", claims={"gpu": "moves"}, nodeSelector=on(LEAVES)))
    await team.runs("left")
    await asyncio.to_thread(kubelet.stop)
    await delete_by_force(team, "left")
    await releasing(team, "moves")
    await team.create(pod("moved", claims={"gpu": "moves"}))
    await team.waits("moved", reasons.RELEASING)

    await taint(admin, OUT_OF_SERVICE_TAINT)

    assert (await team.runs("moved", within=120)).spec.node_name == RETURNS
    await asyncio.to_thread(kubelet.start)
    await taint(admin)
    await team.delete(PODS, "moved")


async def be_away(team: Namespace, node: Node, kubelet: Component) -> str:
    """Two pods are deleted by force while the kubelet is away, and nothing is handed on. Returns the UID of what
    the first one used."""
    await team.create(claim("mine"), pod("lost-named", claims={"gpu": "mine"}, nodeSelector=on(RETURNS)))
    await team.create(pod("lost", templates={"gpu": "one"}, nodeSelector=on(RETURNS)))
    await asyncio.gather(team.runs("lost"), team.runs("lost-named"))
    (used,) = await team.mirrors("lost")
    held = prepared(node)
    assert len(held) == 2

    await asyncio.to_thread(kubelet.stop)
    await asyncio.gather(delete_by_force(team, "lost"), delete_by_force(team, "lost-named"))
    await releasing(team, "mine")
    await team.create(pod("next", templates={"gpu": "one"}, nodeSelector=on(RETURNS)))
    await team.create(pod("next-named", claims={"gpu": "mine"}, nodeSelector=on(RETURNS)))

    assert (await release_of(team, used.metadata.uid)).spec.node_name == RETURNS
    await team.waits("next", reasons.NOTHING_VIABLE)
    words = await team.waits("next-named", reasons.RELEASING)
    assert f"a pod that used it on node {RETURNS} was deleted by force" in words
    await asyncio.sleep(5)
    for name in ("next", "next-named"):
        assert not (await team.client.get(PODS, name, team.name)).spec.node_name
    assert prepared(node) == held
    return used.metadata.uid


async def test_devices_are_handed_on_when_the_kubelet_is_back_or_its_node_out_of_service_and_not_before(
    cluster: Cluster, admin: Client, team: Namespace, kubelets: Mapping[str, Component], in_service: None
) -> None:
    """A kubelet that comes back takes 60 s before it looks at what it has prepared: it is waited for once."""
    node = cluster.node(RETURNS)
    await leave(team, admin, kubelets[LEAVES])
    used = await be_away(team, node, kubelets[RETURNS])

    await asyncio.to_thread(kubelets[RETURNS].start)

    later = (team.runs("next", within=180), team.runs("next-named", within=180))
    await asyncio.gather(*later, unprepared(cluster.node(LEAVES)))
    assert used not in prepared(node)
    assert len(prepared(node)) == 2
