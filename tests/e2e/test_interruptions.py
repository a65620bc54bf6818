"""The controller ends, or somebody meddles with claims, while pods run: they keep their devices, nobody else gets
them, and all goes on after it."""

from collections.abc import Iterator

import pytest
from tests.cluster.manifests import claim, pod
from tests.cluster.namespace import Namespace, devices_of
from tests.cluster.nodes import prepared

from parley.api import reasons
from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.sdk import Device
from parley_devcluster import Cluster
from parley_devcluster.parley import CONTROLLER

pytestmark = pytest.mark.cluster

CLEARED = {"status": {"allocation": None, "reservedFor": None, "devices": None}}


@pytest.fixture
def controller_back(cluster: Cluster) -> Iterator[None]:
    """However the test ends, the controller runs afterwards."""
    yield
    cluster.component(CONTROLLER).launch()


async def test_a_killed_controller_leaves_running_pods_alone_and_serves_waiting_ones_after_its_return(
    cluster: Cluster, team: Namespace, controller_back: None
) -> None:
    await team.create(pod("pair", templates={"left": "one", "right": "one"}), claim("mine"))
    await team.create(pod("named", claims={"gpu": "mine"}))
    for name in ("pair", "named"):
        await team.runs(name)
    held = await team.devices("pair")
    await team.create(pod("waiting", templates={"gpu": "one"}))
    await team.waits("waiting", reasons.NOTHING_VIABLE)
    await team.create(pod("unlucky", templates={"gpu": "one"}))

    cluster.component(CONTROLLER).kill()
    await team.create(pod("plain"), pod("late", templates={"gpu": "one"}))
    await team.runs("plain")
    await team.delete(PODS, "pair")
    cluster.component(CONTROLLER).start()

    pods = await team.pods(
        lambda pods: sum(p.status.phase == "Running" for p in pods) == 4,
        "two of three waiting pods run beside the named and the plain one",
    )
    assert (await team.client.get(PODS, "named", team.name)).status.phase == "Running"
    running = {p.metadata.name for p in pods if p.status.phase == "Running"} - {"plain", "named"}
    assert frozenset.union(*[await team.devices(name) for name in running]) == held
    (left,) = {"waiting", "unlucky", "late"} - running
    await team.delete(PODS, "named")
    await team.runs(left)


@pytest.mark.parametrize("named", [False, True], ids=["generated", "named"])
async def test_a_mirror_of_a_running_pod_that_was_cleared_is_put_right_and_its_device_stays_taken(
    cluster: Cluster, team: Namespace, named: bool
) -> None:
    await fill(team, named=named)
    (mirror,) = [m for m in (await team.client.list(BUILTIN_CLAIMS, team.name)).items if used_by("holder", m)]
    name, version, devices = mirror.metadata.name, mirror.metadata.resource_version, devices_of(mirror)

    await team.client.patch(BUILTIN_CLAIMS, name, CLEARED, team.name, subresource="status")

    again = await team.claim(
        name, lambda m: m.metadata.resource_version != version and used_by("holder", m), "is the holder's again"
    )
    assert devices_of(again) == devices
    assert again.metadata.uid in {uid for node in cluster.nodes for uid in prepared(node)}
    await only_after_the_holder(team)


async def test_a_named_mirror_of_a_running_pod_that_was_deleted_stays_until_the_pod_is_gone(
    cluster: Cluster, team: Namespace
) -> None:
    await fill(team, named=True)

    await team.client.delete(BUILTIN_CLAIMS, "mine", team.name)

    mirror = await team.claim("mine", lambda m: bool(m.metadata.deletion_timestamp), "is being deleted")
    assert used_by("holder", mirror)
    await only_after_the_holder(team)
    uid = mirror.metadata.uid
    await team.claim("mine", lambda m: m.metadata.uid != uid, "is recreated")


async def test_a_generated_mirror_of_a_running_pod_that_was_deleted_frees_nothing_before_the_pod_is_gone(
    cluster: Cluster, team: Namespace
) -> None:
    await fill(team, named=False)
    (mirror,) = await team.mirrors("holder")

    await team.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, team.name)
    await team.gone(BUILTIN_CLAIMS, mirror.metadata.name)

    await only_after_the_holder(team)


def used_by(pod_name: str, mirror: BuiltinClaim) -> bool:
    return pod_name in {user.name for user in mirror.status.reserved_for}


async def fill(team: Namespace, *, named: bool) -> None:
    """All three devices are in use, one by `holder`, and `next` waits."""
    await team.create(claim("mine"), pod("pair", templates={"left": "one", "right": "one"}))
    await team.runs("pair")
    await team.create(pod("holder", claims={"gpu": "mine"}) if named else pod("holder", templates={"gpu": "one"}))
    await team.runs("holder")
    await team.create(pod("next", templates={"gpu": "one"}))
    await team.waits("next", reasons.NOTHING_VIABLE)


async def only_after_the_holder(team: Namespace) -> None:
    """`next` has nothing, `holder` runs on undisturbed; when that is gone, `next` runs."""
    assert await team.devices("next") == frozenset()
    assert (await team.client.get(PODS, "holder", team.name)).status.phase == "Running"
    await team.delete(PODS, "holder")
    await team.runs("next")
    assert await team.devices("next") == {Device("node-a", "a-0")}
