"""What the second scheduler cannot serve is refused, with words that name the way out."""

from typing import Any

import pytest
from tests.cluster.manifests import Manifest, ordinary_claim, ordinary_class, resource_slice, template
from tests.cluster.namespace import Namespace
from tests.integration.extender.conftest import Devices, parley_pod

from parley.api.builtin import Pod
from parley.api.resources import NODES, PODS

pytestmark = pytest.mark.cluster

OTHER = "test.example.com"
CARD = "example.com/card"
REMEDY = "leave schedulerName out, so that the cluster's own scheduler places the pod"


def told(pod: Pod) -> str:
    return " ".join(condition.message for condition in pod.status.conditions if condition.type == "PodScheduled")


async def refused(team: Namespace, name: str) -> str:
    """What the scheduler says about the pod, when it has said something."""
    pod = await team.pod(name, lambda pod: "Parley" in told(pod), "is refused")
    assert not pod.spec.node_name
    return told(pod)


async def test_a_claim_of_another_driver(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1)
    await devices(driver=OTHER, node_0=1)
    await team.create(
        ordinary_class("other", f"device.driver == '{OTHER}'"), ordinary_claim("card", "other"), template("one")
    )

    await team.create(parley_pod("mixed", templates={"gpu": "one"}, claims={"card": "card"}))

    assert f"claims card are not Parley's and this scheduler allocates no others: {REMEDY}" in await refused(
        team, "mixed"
    )


def asking_for_a_card(pod: Manifest) -> Manifest:
    resources: dict[str, Any] = pod["spec"]["containers"][0]["resources"]
    resources["requests"][CARD] = resources.setdefault("limits", {})[CARD] = "1"
    return pod


async def test_an_extended_resource_that_a_dra_driver_stands_for(team: Namespace) -> None:
    class_ = ordinary_class("cards", f"device.driver == '{OTHER}'")
    class_["spec"]["extendedResourceName"] = CARD
    await team.create(class_, resource_slice("node-0", ["card-0"], OTHER))

    await team.create(asking_for_a_card(parley_pod("carded")))

    words = f"{CARD}: a DRA driver allocates it, which this scheduler does not ask: {REMEDY}"
    assert words in await refused(team, "carded")


async def test_an_extended_resource_that_a_node_has_itself_is_had_from_that_node(team: Namespace) -> None:
    class_ = ordinary_class("cards", f"device.driver == '{OTHER}'")
    class_["spec"]["extendedResourceName"] = CARD
    await team.create(class_)
    had = {"status": {"capacity": {CARD: "1"}, "allocatable": {CARD: "1"}}}
    await team.client.patch(NODES, "node-2", had, subresource="status")
    try:
        await team.create(asking_for_a_card(parley_pod("carded")))

        assert (await team.bound("carded")).spec.node_name == "node-2"
        await team.delete(PODS, "carded")
    finally:
        gone = {"status": {"capacity": {CARD: None}, "allocatable": {CARD: None}}}
        await team.client.patch(NODES, "node-2", gone, subresource="status")
