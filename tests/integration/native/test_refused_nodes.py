"""The scheduler refuses what Parley proposed, for reasons that Parley's model of it does not know."""

import pytest
from tests.cluster.manifests import apart_from, pod, resource_class, template
from tests.cluster.namespace import Namespace, devices_of
from tests.integration.native.conftest import Devices

from parley.api import reasons
from parley.api.builtin import BuiltinClaim
from parley.api.resources import PODS
from parley.control.objects.mirror import is_offer
from parley.sdk import Device

pytestmark = pytest.mark.cluster

LOUD = {"habit": "loud"}


def offered(mirror: BuiltinClaim) -> bool:
    return mirror.status.allocation is not None and is_offer(mirror.status.allocation)


async def test_the_claim_is_taken_back_and_the_pod_runs_where_the_scheduler_chooses(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(template("one"), pod("loud", labels=LOUD, nodeName="node-0"))

    await team.create(pod("quiet", templates={"gpu": "one"}, affinity=apart_from(LOUD)))

    assert await team.waits("quiet", reasons.SCHEDULER_REFUSED) == (
        "node node-0: viable, but refused by the scheduler. "
        "See the pod's own conditions for the scheduler's reasons; Parley offers them again"
    )
    await team.claims(lambda claims: not any(map(devices_of, claims)), "nothing is held between two offers")

    await devices(node_1=1)
    assert (await team.bound("quiet")).spec.node_name == "node-1"
    (mirror,) = await team.mirrors("quiet")
    assert offered(mirror)
    assert await team.devices("quiet") == {Device("node-1", "gpu-0")}
    scheduling = await team.scheduling("quiet", lambda s: bool(s.spec.selected_node), "has a node selected")
    assert scheduling.spec.selected_node == "node-1"
    await team.create(pod("next", templates={"gpu": "one"}))
    assert (await team.bound("next")).spec.node_name == "node-0"


async def test_only_one_of_several_viable_nodes_will_do(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1, node_1=1, node_2=1)
    await team.create(template("one"))
    await team.create(*(pod(f"loud-{n}", labels=LOUD, nodeName=f"node-{n}") for n in (0, 1)))

    await team.create(pod("quiet", templates={"gpu": "one"}, affinity=apart_from(LOUD)))

    assert (await team.bound("quiet")).spec.node_name == "node-2"
    assert await team.devices("quiet") == {Device("node-2", "gpu-0")}


async def test_refused_nodes_are_offered_again_when_the_reason_is_gone(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1)
    await team.create(template("one"), pod("loud", labels=LOUD, nodeName="node-0"))
    await team.create(pod("quiet", templates={"gpu": "one"}, affinity=apart_from(LOUD)))
    await team.waits("quiet", reasons.SCHEDULER_REFUSED)

    await team.delete(PODS, "loud")

    assert (await team.bound("quiet")).spec.node_name == "node-0"


async def test_a_class_may_leave_the_choice_to_the_scheduler_from_the_start(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1, node_1=1)
    await team.create(resource_class("exact", placement="Exact"), template("one", "exact"))

    await team.create(pod("patient", templates={"gpu": "one"}))

    node = (await team.bound("patient")).spec.node_name
    (mirror,) = await team.mirrors("patient")
    assert offered(mirror)
    assert await team.devices("patient") == {Device(node, "gpu-0")}
