"""Beside ordinary DRA: a pod may mix both kinds of claims, and neither takes what is the other's."""

import pytest
from tests.cluster.manifests import ordinary_claim, ordinary_class, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.integration.native.conftest import Devices

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.sdk import Device

pytestmark = pytest.mark.cluster

OTHER = "test.example.com"
OF_THE_OTHER = f"device.driver == '{OTHER}'"


def results(claim: BuiltinClaim) -> list[tuple[str, str, str]]:
    allocation = claim.status.allocation
    return [(r.driver, r.pool, r.device) for r in allocation.devices.results] if allocation else []


def unschedulable(pod: Pod) -> bool:
    return any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in pod.status.conditions)


async def test_a_pod_gets_its_negotiated_and_its_ordinary_device_on_one_node(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1, node_1=1, node_2=1)
    await devices(driver=OTHER, node_1=1)
    await team.create(ordinary_class("other", OF_THE_OTHER), ordinary_claim("card", "other"), template("one"))

    await team.create(pod("both", templates={"gpu": "one"}, claims={"card": "card"}))

    assert (await team.bound("both")).spec.node_name == "node-1"
    assert await team.devices("both") == {Device("node-1", "gpu-0")}
    card = await team.client.get(BUILTIN_CLAIMS, "card", team.name)
    assert results(card) == [(OTHER, "node-1", "gpu-0")]
    assert [user.name for user in card.status.reserved_for] == ["both"]


async def test_a_class_that_selects_everything_never_takes_a_negotiated_device(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(ordinary_class("everything", "true"), ordinary_claim("any", "everything"))

    await team.create(pod("ordinary", claims={"any": "any"}))
    await team.pod("ordinary", unschedulable, "is refused by the scheduler")

    await devices(driver=OTHER, node_1=1)
    assert (await team.bound("ordinary")).spec.node_name == "node-1"
    assert results(await team.client.get(BUILTIN_CLAIMS, "any", team.name)) == [(OTHER, "node-1", "gpu-0")]


async def test_a_device_that_ordinary_dra_took_on_purpose_is_in_use_until_it_is_given_back(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(ordinary_class("everything", "true"), ordinary_claim("taken", "everything", tolerate=True))
    await team.create(pod("ordinary", claims={"it": "taken"}))
    await team.bound("ordinary")

    await team.create(template("one"), pod("negotiated", templates={"gpu": "one"}))

    await team.waits("negotiated", reasons.NOTHING_VIABLE)
    await team.delete(PODS, "ordinary")
    await team.bound("negotiated")
    assert await team.devices("negotiated") == {Device("node-0", "gpu-0")}


async def test_two_classes_of_one_driver_are_served_together(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1, node_1=2)
    await team.create(resource_class("again"), template("one"), template("other", "again"))

    await team.create(pod("both", templates={"a": "one", "b": "other"}))

    assert (await team.bound("both")).spec.node_name == "node-1"
    assert await team.devices("both") == {Device("node-1", "gpu-0"), Device("node-1", "gpu-1")}


async def test_a_pod_with_a_negotiated_claim_gets_an_extended_resource_from_another_driver(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1, node_1=1)
    await devices(driver=OTHER, node_1=1)
    fpga = ordinary_class("fpga", OF_THE_OTHER)
    await team.create(
        {**fpga, "spec": {**fpga["spec"], "extendedResourceName": "example.com/fpga"}}, template("one")
    )
    whole = pod("both", templates={"gpu": "one"})
    (container,) = whole["spec"]["containers"]
    container["resources"] = {**container.get("resources", {}), "limits": {"example.com/fpga": "1"}}

    await team.create(whole)

    assert (await team.bound("both")).spec.node_name == "node-1"
    assert await team.devices("both") == {Device("node-1", "gpu-0")}
