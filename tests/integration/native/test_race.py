"""Several pods want what only one of them can have."""

import asyncio

import pytest
from tests.cluster.manifests import pod, template
from tests.cluster.namespace import Namespace
from tests.integration.native.conftest import Devices

from parley.api import reasons
from parley.api.resources import PODS
from parley.sdk import Device

pytestmark = pytest.mark.cluster

SOON = 30.0
"""Seconds from the release of a device to the binding of the pod that waited for it, on a slow machine; the
scheduler tries all pods again after five minutes only."""


async def test_of_two_pods_for_the_last_device_one_is_bound_and_the_other_right_after_its_release(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1, node_1=0, node_2=0)
    await team.create(template("one"))

    await asyncio.gather(*(team.create(pod(name, templates={"gpu": "one"})) for name in ("left", "right")))
    bindings = {asyncio.create_task(team.bound(name), name=name) for name in ("left", "right")}
    bound, (waiting,) = await asyncio.wait(bindings, return_when=asyncio.FIRST_COMPLETED)
    winner, loser = bound.pop().get_name(), waiting.get_name()

    expected = (
        "0 of 3 nodes are available: node node-0: claim gpu: 0 of 1 device free, 1 wanted; "
        "nodes node-1, node-2: claim gpu: has no devices. "
        "Remedy: free resources, request less, or add nodes that have what is requested"
    )
    assert await team.waits(loser, reasons.NOTHING_VIABLE) == expected
    assert await team.told(loser, reasons.NOTHING_VIABLE) == expected
    assert await team.devices(loser) == frozenset()
    assert not waiting.done()

    await team.delete(PODS, winner)
    async with asyncio.timeout(SOON):
        assert (await waiting).spec.node_name == "node-0"
    assert await team.devices(loser) == {Device("node-0", "gpu-0")}


async def test_a_pod_that_waits_is_bound_when_a_node_with_devices_appears(
    team: Namespace, devices: Devices
) -> None:
    await team.create(template("two", count=2), pod("large", templates={"gpus": "two"}))
    await team.waits("large", reasons.NOTHING_VIABLE)

    await devices(node_1=1, node_2=2)

    assert (await team.bound("large")).spec.node_name == "node-2"
    scheduling = await team.scheduling("large", lambda s: s.spec.selected_node == "node-2", "has node-2 selected")
    assert scheduling.status.waiting_for == ""
    assert scheduling.status.claims[0].viable_nodes == ("node-2",)


async def test_devices_of_a_finished_pod_are_free_although_the_pod_is_still_there(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(template("one"), pod("first", templates={"gpu": "one"}))
    await team.bound("first")
    await team.create(pod("second", templates={"gpu": "one"}))
    await team.waits("second", reasons.NOTHING_VIABLE)

    await team.finish("first")

    await team.bound("second")
    assert (await team.client.get(PODS, "first", team.name)).status.phase == "Succeeded"


async def test_a_pod_that_is_deleted_before_it_is_bound_leaves_nothing(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1)
    await team.create(template("one"), pod("first", templates={"gpu": "one"}))
    await team.bound("first")
    await team.create(pod("impatient", templates={"gpu": "one"}), pod("patient", templates={"gpu": "one"}))
    await team.waits("impatient", reasons.NOTHING_VIABLE)
    await team.waits("patient", reasons.NOTHING_VIABLE)

    await team.delete(PODS, "impatient")
    await team.delete(PODS, "first")

    await team.bound("patient")
