"""A claim that only one pod may use: others wait, however they come to their node."""

from collections.abc import Awaitable, Callable

import pytest
from tests.cluster.manifests import claim, pod, resource_class
from tests.cluster.namespace import Namespace, devices_of
from tests.integration.native.conftest import Devices

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod
from parley.api.names import CONDITION_IN_USE
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.kube.client import ApiError
from parley.sdk import Device

pytestmark = pytest.mark.cluster

Placing = Callable[[Namespace], Awaitable[None]]


async def with_a_node_name(team: Namespace) -> None:
    await team.create(pod("second", claims={"gpu": "mine"}, nodeName="node-0"))


async def by_another_scheduler(team: Namespace) -> None:
    await team.create(pod("second", claims={"gpu": "mine"}, schedulerName="another"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-0"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "second"}, "target": target}
    await team.client.create_subresource(PODS, "second", "binding", binding, team.name)


def users(mirror: BuiltinClaim) -> list[str]:
    return [user.name for user in mirror.status.reserved_for]


@pytest.mark.parametrize("place", [with_a_node_name, by_another_scheduler])
async def test_a_second_pod_that_others_put_on_the_node_gets_the_device_only_after_the_first(
    team: Namespace, devices: Devices, place: Placing
) -> None:
    await devices(node_0=1)
    await team.create(claim("mine"), pod("first", claims={"gpu": "mine"}))
    await team.bound("first")

    await place(team)

    expected = (
        f"claim {team.name}/mine is not shareable and pod {team.name}/first uses it: "
        "wait until that ends, or use a template"
    )
    assert await team.waits("second", reasons.CLAIM_IN_USE) == expected
    assert await team.told("second", reasons.CLAIM_IN_USE) == expected
    second = await team.client.get(PODS, "second", team.name)
    forced = {"resource": "pods", "name": "second", "uid": second.metadata.uid}
    mirror = await team.client.get(BUILTIN_CLAIMS, "mine", team.name)
    first = {"resource": "pods", "name": "first", "uid": mirror.status.reserved_for[0].uid}
    for reservation in ([first, forced], [forced]):
        with pytest.raises(ApiError, match=f"ResourceClaim {team.name}/mine is exclusive"):
            await team.client.patch(
                BUILTIN_CLAIMS,
                "mine",
                {"status": {"reservedFor": reservation}},
                team.name,
                subresource="status",
            )
    assert users(await team.client.get(BUILTIN_CLAIMS, "mine", team.name)) == ["first"]

    await team.delete(PODS, "first")

    mirror = await team.claim("mine", lambda mirror: users(mirror) == ["second"], "is reserved for second")
    assert devices_of(mirror) == {Device("node-0", "gpu-0")}


async def test_pods_use_an_exclusive_claim_one_after_the_other(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1, node_1=1)
    await team.create(claim("mine"), pod("first", claims={"gpu": "mine"}))
    await team.bound("first")
    await team.create(pod("second", claims={"gpu": "mine"}))
    await team.waits("second", reasons.CLAIM_IN_USE)

    await team.finish("first")

    await team.bound("second")
    assert users(await team.client.get(BUILTIN_CLAIMS, "mine", team.name)) == ["second"]


async def test_the_scheduler_is_told_that_a_claim_is_in_use_and_tries_the_next_pod_no_more(
    team: Namespace, devices: Devices
) -> None:
    """Otherwise it would try, be refused and back off for up to 10 s, whatever happens to the claim meanwhile."""
    await devices(node_0=1, node_1=1)
    await team.create(claim("mine"), pod("first", claims={"gpu": "mine"}))
    await team.bound("first")
    assert said_in_use(await team.client.get(BUILTIN_CLAIMS, "mine", team.name)) == []
    await team.create(pod("second", claims={"gpu": "mine"}))

    mirror = await team.claim("mine", lambda mirror: bool(said_in_use(mirror)), "is said to be in use")
    assert said_in_use(mirror) == [f"pod {team.name}/first uses the claim"]
    await team.pod(
        "second", lambda one: "resourceclaim not available on the node" in _scheduler_says(one), "is left"
    )

    await team.finish("first")
    await team.bound("second")
    mirror = await team.claim("mine", lambda mirror: users(mirror) == ["second"], "is reserved for second")
    assert said_in_use(mirror) == []


def said_in_use(mirror: BuiltinClaim) -> list[str]:
    """What is said about that."""
    conditions = [condition for device in mirror.status.devices for condition in device.conditions]
    return [one.message for one in conditions if one.type == CONDITION_IN_USE and one.status == "True"]


def _scheduler_says(one: Pod) -> str:
    """While the pod is in back-off after an error this is another reason."""
    return next((c.message for c in one.status.conditions if c.reason == "Unschedulable"), "")


async def test_a_claim_without_users_gives_its_device_back_and_can_be_deleted(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(claim("mine"), pod("first", claims={"gpu": "mine"}))
    await team.bound("first")

    await team.delete(PODS, "first")

    await team.parley_claim("mine", lambda c: c.status.allocation is None, "holds nothing")
    await team.delete(CLAIMS, "mine")
    await team.gone(BUILTIN_CLAIMS, "mine")


async def test_a_claim_in_use_is_deleted_only_after_its_pod(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1)
    await team.create(claim("mine"), pod("first", claims={"gpu": "mine"}))
    await team.bound("first")

    await team.client.delete(CLAIMS, "mine", team.name)
    await team.create(pod("late", claims={"gpu": "mine"}))

    assert await team.waits("late", reasons.CLAIM_BEING_DELETED) == (
        f"claim {team.name}/mine is being deleted: recreate it once it is gone, or the pod with another claim"
    )
    assert users(await team.client.get(BUILTIN_CLAIMS, "mine", team.name)) == ["first"]
    await team.delete(PODS, "first")
    await team.gone(CLAIMS, "mine")
    await team.gone(BUILTIN_CLAIMS, "mine")


async def test_pods_share_a_claim_of_a_shareable_class_on_one_node(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1, node_1=1)
    await team.create(resource_class("common", shareable=True), claim("ours", "common"))
    await team.create(pod("first", claims={"gpu": "ours"}), pod("second", claims={"gpu": "ours"}))

    nodes = {(await team.bound(name)).spec.node_name for name in ("first", "second")}

    assert len(nodes) == 1
    await team.claim("ours", lambda m: set(users(m)) == {"first", "second"}, "is reserved for both")
    await team.delete(PODS, "first")
    await team.claim("ours", lambda m: users(m) == ["second"] and bool(devices_of(m)), "is still second's")
