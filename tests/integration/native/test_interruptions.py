"""The controller is down, or dies in the middle: who has no claims does not notice, the others go on after it."""

import pytest
from tests.cluster.manifests import claim, ordinary_claim, ordinary_class, pod, template
from tests.cluster.namespace import Namespace
from tests.integration.native.conftest import Devices, Parley

from parley.api import reasons
from parley.api.resources import PODS
from parley.sdk import Device

pytestmark = pytest.mark.cluster

OTHER = "test.example.com"


async def test_pods_without_negotiated_claims_are_bound_while_parley_is_down(
    team: Namespace, devices: Devices, parley: Parley
) -> None:
    await devices(driver=OTHER, node_1=1)
    await team.create(ordinary_class("other", f"device.driver == '{OTHER}'"), ordinary_claim("card", "other"))
    await parley.kill()

    await team.create(pod("plain"), pod("ordinary", claims={"card": "card"}))

    await team.bound("plain")
    assert (await team.bound("ordinary")).spec.node_name == "node-1"


async def test_pods_without_negotiated_claims_get_no_trace_of_parley(team: Namespace) -> None:
    await team.create(pod("plain"), template("one"), pod("other", templates={"gpu": "one"}))
    await team.waits("other", reasons.NOTHING_VIABLE)

    plain = await team.bound("plain")

    assert not plain.metadata.annotations
    assert not plain.metadata.finalizers
    await team.create(pod("late"))
    assert not (await team.bound("late")).metadata.annotations
    schedulings = {s.metadata.name for s in await team.schedulings()}
    assert schedulings == {"other"}


async def test_after_a_restart_bound_pods_keep_their_devices_and_waiting_pods_go_on(
    team: Namespace, devices: Devices, parley: Parley
) -> None:
    await devices(node_0=1, node_1=1)
    await team.create(template("one"), claim("mine"))
    await team.create(pod("generated", templates={"gpu": "one"}), pod("named", claims={"gpu": "mine"}))
    for name in ("generated", "named"):
        await team.bound(name)
    before = await team.devices("generated")
    await team.create(pod("waiting", templates={"gpu": "one"}))
    await team.waits("waiting", reasons.NOTHING_VIABLE)

    await parley.kill()
    await team.create(pod("newcomer", templates={"gpu": "one"}))
    await parley.start()

    await team.waits("newcomer", reasons.NOTHING_VIABLE)
    assert await team.devices("generated") == before
    await team.delete(PODS, "named")
    await team.delete(PODS, "generated")
    for name in ("waiting", "newcomer"):
        await team.bound(name)
    held = await team.devices("waiting") | await team.devices("newcomer")
    assert held == {Device("node-0", "gpu-0"), Device("node-1", "gpu-0")}


async def test_what_pods_held_that_ended_while_parley_was_down_is_free(
    team: Namespace, devices: Devices, parley: Parley
) -> None:
    await devices(node_0=2)
    await team.create(template("one"), claim("mine"))
    await team.create(pod("deleted", templates={"gpu": "one"}), pod("finished", claims={"gpu": "mine"}))
    for name in ("deleted", "finished"):
        await team.bound(name)

    await parley.kill()
    await team.delete(PODS, "deleted")
    await team.finish("finished")
    await parley.start()

    await team.create(pod("next", templates={"a": "one", "b": "one"}))
    await team.bound("next")
    assert len(await team.devices("next")) == 2
    await team.claim("mine", lambda mirror: mirror.status.allocation is None, "is free")


@pytest.mark.parametrize("bound", [0, 1, 3])
async def test_a_controller_that_dies_while_pods_arrive_ends_with_each_bound_once(
    team: Namespace, devices: Devices, parley: Parley, bound: int
) -> None:
    await devices(node_0=2, node_1=2, node_2=2)
    await team.create(template("one"))
    names = [f"p{number}" for number in range(6)]
    await team.create(*(pod(name, templates={"gpu": "one"}) for name in names))

    await team.pods(lambda pods: sum(1 for p in pods if p.spec.node_name) >= bound, f"{bound} pods are bound")
    await parley.kill()
    await parley.start()

    for name in names:
        await team.bound(name)
    held = [device for name in names for device in await team.devices(name)]
    assert len(held) == len(set(held)) == 6
