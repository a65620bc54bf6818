"""A pod's devices, from the claim to the container and back."""

import pytest
from tests.cluster.containers import LOOK, seen, touch
from tests.cluster.manifests import UNTIL_FINISHED, pod
from tests.cluster.namespace import Namespace
from tests.cluster.nodes import prepared, specifications

from parley.api import reasons
from parley.api.resources import PODS
from parley.sdk import Device
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

BOTH_OF_B = {Device("node-b", "b-0"), Device("node-b", "b-1")}


async def test_two_claims_land_on_the_node_that_has_two_devices_and_the_container_has_both(
    cluster: Cluster, team: Namespace
) -> None:
    a, b = cluster.node("node-a"), cluster.node("node-b")

    await team.create(pod("pair", templates={"left": "one", "right": "one"}, script=LOOK + UNTIL_FINISHED))

    assert (await team.runs("pair")).spec.node_name == "node-b"
    assert await team.devices("pair") == BOTH_OF_B
    mirrors = {mirror.metadata.uid for mirror in await team.mirrors("pair")}
    assert prepared(b).keys() == mirrors
    assert frozenset.union(*prepared(b).values()) == {"b-0", "b-1"}
    assert len(specifications(b)) == 2
    assert prepared(a) == {}
    assert specifications(a) == []
    lines = seen(cluster, team, "pair")
    assert {"PARLEY_DEVICE_B_0=a100", "PARLEY_DEVICE_B_1=a100"} <= set(lines)
    assert [line for line in lines if "gives" in line] == ["b-0 gives 4 bytes", "b-1 gives 4 bytes"]
    scheduling = await team.scheduling("pair", lambda s: s.spec.selected_node == "node-b", "has node-b selected")
    assert {claim.name: claim.viable_nodes for claim in scheduling.status.claims} == {
        "left": ("node-b",),
        "right": ("node-b",),
    }

    await team.delete(PODS, "pair")

    assert prepared(b) == {}
    assert specifications(b) == []
    await team.claims(lambda claims: not claims, "the pod's claims are gone")
    await team.create(pod("next", templates={"left": "one", "right": "one"}))
    await team.runs("next")
    assert await team.devices("next") == BOTH_OF_B


async def test_a_container_without_the_claim_does_not_see_the_devices(cluster: Cluster, team: Namespace) -> None:
    await team.create(pod("pair", templates={"gpu": "one"}, script=LOOK + UNTIL_FINISHED))
    await team.create(pod("plain", script=LOOK + UNTIL_FINISHED))
    for name in ("pair", "plain"):
        await team.runs(name)

    assert len([line for line in seen(cluster, team, "pair") if "gives" in line]) == 1
    assert not [line for line in seen(cluster, team, "plain") if "gives" in line or "PARLEY" in line]


async def test_ten_pods_over_three_devices_run_three_at_a_time_until_all_have_run(
    cluster: Cluster, team: Namespace
) -> None:
    names = [f"p{number}" for number in range(10)]
    await team.create(*(pod(name, templates={"gpu": "one"}) for name in names))

    left = set(names)
    while left:
        running = await team.pods(
            lambda pods: sum(p.status.phase == "Running" for p in pods) == min(3, len(left)),  # noqa: B023
            f"{min(3, len(left))} of {len(left)} pods run",
        )
        now = {p.metadata.name for p in running if p.status.phase == "Running"}
        assert frozenset.union(*[await team.devices(name) for name in now]) <= {
            Device("node-a", "a-0"),
            *BOTH_OF_B,
        }
        for name in left - now:
            message = await team.waits(name, reasons.NOTHING_VIABLE)
            assert message == (
                "0 of 2 nodes are available: node node-a: claim gpu: 0 of 1 device free, 1 wanted; "
                "node node-b: claim gpu: 0 of 2 devices free, 1 wanted. "
                "Remedy: free resources, request less, or add nodes that have what is requested"
            )
            assert await team.told(name, reasons.NOTHING_VIABLE) == message
        for name in now:
            touch(cluster, team, name)
            await team.pod(name, lambda p: p.status.phase == "Succeeded", "is finished")
        left -= now


async def test_a_device_that_its_pod_gave_back_is_with_the_next_pod_at_once(
    cluster: Cluster, team: Namespace
) -> None:
    await team.create(pod("pair", templates={"left": "one", "right": "one"}))
    await team.runs("pair")
    await team.create(pod("last", templates={"gpu": "one"}))
    await team.runs("last")
    await team.create(pod("left", templates={"gpu": "one"}), pod("right", templates={"gpu": "one"}))
    for name in ("left", "right"):
        await team.waits(name, reasons.NOTHING_VIABLE)

    await team.delete(PODS, "last")

    pods = await team.pods(
        lambda pods: any(p.spec.node_name for p in pods if p.metadata.name in ("left", "right")),
        "one of both is bound",
    )
    (winner,) = [p.metadata.name for p in pods if p.spec.node_name and p.metadata.name in ("left", "right")]
    await team.runs(winner)
    loser = "left" if winner == "right" else "right"
    assert await team.devices(winner) == {Device("node-a", "a-0")}
    assert await team.devices(loser) == frozenset()
    await team.delete(PODS, winner)
    await team.bound(loser)
    await team.runs(loser)
