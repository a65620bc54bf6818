"""Pods of the second scheduler: what each needs is allocated and reserved before it is bound."""

import pytest
from tests.cluster.manifests import claim, pod, resource_class, template
from tests.cluster.namespace import Namespace, devices_of
from tests.integration.extender.conftest import NODES, Devices, parley_pod

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.sdk import Device

pytestmark = pytest.mark.cluster


def is_ready_for(claim: BuiltinClaim, pod: Pod) -> bool:
    """Whether it was allocated on the pod's node and reserved for the pod before the pod was bound."""
    nodes = {device.pool for device in devices_of(claim)}
    users = [user.uid for user in claim.status.reserved_for]
    earlier = int(claim.metadata.resource_version) < int(pod.metadata.resource_version)
    return (nodes, users) == ({pod.spec.node_name}, [pod.metadata.uid]) and earlier


async def test_a_pod_with_one_claim(team: Namespace, devices: Devices) -> None:
    await devices(node_1=1)
    await team.create(template("one"), parley_pod("p", templates={"gpu": "one"}))

    bound = await team.bound("p")

    (mirror,) = await team.mirrors("p")
    assert is_ready_for(mirror, bound)
    assert devices_of(mirror) == {Device("node-1", "gpu-0")}
    await team.scheduling("p", lambda s: s.spec.selected_node == "node-1", "shows the selected node")


async def test_a_pod_with_four_claims_gets_all_of_them_on_one_node(team: Namespace, devices: Devices) -> None:
    await devices(node_0=3, node_1=4, node_2=3)
    await team.create(template("one"), parley_pod("p", templates=dict.fromkeys("abcd", "one")))

    bound = await team.bound("p")

    mirrors = await team.mirrors("p")
    assert len(mirrors) == 4
    assert all(is_ready_for(mirror, bound) for mirror in mirrors)
    assert await team.devices("p") == {Device("node-1", f"gpu-{number}") for number in range(4)}


async def test_a_pod_without_claims(team: Namespace) -> None:
    await team.create(parley_pod("plain"))

    assert (await team.bound("plain")).spec.node_name in NODES
    assert await team.schedulings() == ()


async def test_a_pod_waits_while_all_is_taken_and_gets_in_when_another_ends(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(template("one"), parley_pod("first", templates={"gpu": "one"}))
    await team.bound("first")

    await team.create(parley_pod("second", templates={"gpu": "one"}))
    await team.waits("second", reasons.NOTHING_VIABLE)
    await team.pod("second", lambda pod: "see the pod's podscheduling" in told(pod), "tells where to look")
    await team.delete(PODS, "first")

    await team.bound("second")
    assert await team.devices("second") == {Device("node-0", "gpu-0")}


def told(pod: Pod) -> str:
    """What the scheduler wrote about the pod."""
    return " ".join(condition.message for condition in pod.status.conditions if condition.type == "PodScheduled")


async def test_a_pod_waits_for_a_template_and_a_class_that_are_still_to_be_made(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(parley_pod("early", templates={"gpu": "late"}))
    await team.pod("early", lambda pod: bool(told(pod)), "was tried")

    await team.create(template("late", "late"), resource_class("late"))

    await team.bound("early")


async def test_pods_of_both_schedulers_share_what_there_is(team: Namespace, devices: Devices) -> None:
    await devices(node_0=4, node_1=4, node_2=4)
    await team.create(template("one"))
    for number in range(6):
        await team.create(parley_pod(f"second-{number}", templates={"gpu": "one"}))
        await team.create(pod(f"first-{number}", templates={"gpu": "one"}))

    names = [f"{which}-{number}" for which in ("first", "second") for number in range(6)]
    held: set[Device] = set()
    for name in names:
        await team.bound(name)
        held |= await team.devices(name)

    assert len(held) == 12


async def test_what_a_pod_of_one_scheduler_gives_back_serves_a_pod_of_the_other(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(template("one"), pod("native", templates={"gpu": "one"}))
    await team.bound("native")
    await team.create(parley_pod("second", templates={"gpu": "one"}))
    await team.waits("second", reasons.NOTHING_VIABLE)
    await team.delete(PODS, "native")
    await team.bound("second")

    await team.create(pod("again", templates={"gpu": "one"}))
    await team.waits("again", reasons.NOTHING_VIABLE)
    await team.delete(PODS, "second")
    await team.bound("again")


async def test_several_pods_on_one_claim_that_is_not_allocated_yet_come_to_one_node(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1, node_1=1, node_2=1)
    await team.create(resource_class("common", shareable=True), claim("ours", "common"))
    names = [f"p{number}" for number in range(5)]
    await team.create(*(parley_pod(name, claims={"gpu": "ours"}) for name in names))

    nodes = {(await team.bound(name)).spec.node_name for name in names}

    assert len(nodes) == 1
    shared = await team.client.get(BUILTIN_CLAIMS, "ours", team.name)
    assert {user.name for user in shared.status.reserved_for} == set(names)


async def test_an_exclusive_claim_goes_from_one_pod_to_the_next(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1, node_1=1)
    await team.create(claim("mine"), parley_pod("first", claims={"gpu": "mine"}))
    await team.bound("first")
    await team.create(parley_pod("second", claims={"gpu": "mine"}))
    await team.waits("second", reasons.CLAIM_IN_USE)

    await team.finish("first")

    await team.bound("second")


async def test_at_exact_fullness_every_pod_gets_its_own(team: Namespace, devices: Devices) -> None:
    await devices(node_0=20, node_1=20, node_2=20)
    await team.create(template("one"))
    names = [f"p{number}" for number in range(60)]
    await team.create(*(parley_pod(name, templates={"gpu": "one"}) for name in names))

    await team.pods(lambda pods: sum(bool(pod.spec.node_name) for pod in pods) == 60, "all are bound")

    held = [device for name in names for device in await team.devices(name)]
    assert len(held) == len(set(held)) == 60
