"""Somebody else clears or deletes the mirror of a bound pod: it is put right, and nothing is free before its time.

Another pod waits for the very device all the while; it may not get it before the first pod is gone.
"""

from collections.abc import AsyncIterator

import pytest
from tests.cluster.manifests import Manifest, claim, pod, template
from tests.cluster.namespace import Namespace, devices_of
from tests.cluster.receipts import receipts_given
from tests.integration.native.conftest import Devices, Parley

from parley.api import reasons
from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, PODS
from parley.kube.client import ApiError
from parley.sdk import Device
from parley_devcluster import Cluster
from parley_devcluster.control_plane import CONTROLLER_MANAGER

pytestmark = pytest.mark.cluster

THE_DEVICE = frozenset({Device("node-0", "gpu-0")})
CLEARED = {"status": {"allocation": None, "reservedFor": None, "devices": None}}


def held_by(name: str, mirror: BuiltinClaim) -> bool:
    return devices_of(mirror) == THE_DEVICE and [user.name for user in mirror.status.reserved_for] == [name]


@pytest.fixture
async def waiting(team: Namespace, devices: Devices) -> AsyncIterator[Namespace]:
    """A namespace where the test lets `holder` have the one device, and `next` wait for it. The node confirms that
    it has unprepared the device, where the claim was deleted under its pod."""
    await devices(node_0=1)
    await team.create(template("one"))
    yield team
    assert await team.devices("next") == frozenset()
    async with receipts_given(team.client, ["node-0"]):
        await team.delete(PODS, "holder")
        await team.bound("next")
    assert await team.devices("next") == THE_DEVICE


async def holder_and_next(team: Namespace, holder: Manifest) -> None:
    await team.create(holder)
    await team.bound("holder")
    await team.create(pod("next", templates={"gpu": "one"}))
    await team.waits("next", reasons.NOTHING_VIABLE)


async def test_a_generated_mirror_that_was_cleared_is_written_again(waiting: Namespace) -> None:
    team = waiting
    await holder_and_next(team, pod("holder", templates={"gpu": "one"}))
    (mirror,) = await team.mirrors("holder")

    name, version = mirror.metadata.name, mirror.metadata.resource_version
    await team.client.patch(BUILTIN_CLAIMS, name, CLEARED, team.name, subresource="status")

    await team.claim(
        name, lambda m: m.metadata.resource_version != version and held_by("holder", m), "is the holder's again"
    )


async def test_a_generated_mirror_that_was_deleted_is_made_again_with_the_same_device(
    waiting: Namespace, cluster: Cluster
) -> None:
    team = waiting
    await holder_and_next(team, pod("holder", templates={"gpu": "one"}))
    (mirror,) = await team.mirrors("holder")
    # For a minute after it made a claim the kube-controller-manager does not believe that it is gone.
    cluster.component(CONTROLLER_MANAGER).stop()
    cluster.component(CONTROLLER_MANAGER).start()

    await team.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, team.name)

    await team.claims(
        lambda claims: any(c.metadata.uid != mirror.metadata.uid and held_by("holder", c) for c in claims),
        "a new claim holds the holder's device",
    )


async def test_a_named_mirror_that_was_cleared_is_written_again(waiting: Namespace) -> None:
    team = waiting
    await team.create(claim("mine"))
    await holder_and_next(team, pod("holder", claims={"gpu": "mine"}))
    version = (await team.client.get(BUILTIN_CLAIMS, "mine", team.name)).metadata.resource_version

    await team.client.patch(BUILTIN_CLAIMS, "mine", CLEARED, team.name, subresource="status")

    await team.claim(
        "mine", lambda m: m.metadata.resource_version != version and held_by("holder", m), "is the holder's again"
    )


async def test_a_named_mirror_that_was_deleted_stays_until_its_pod_is_gone_and_is_then_made_anew(
    waiting: Namespace,
) -> None:
    team = waiting
    await team.create(claim("mine"))
    await holder_and_next(team, pod("holder", claims={"gpu": "mine"}))

    await team.client.delete(BUILTIN_CLAIMS, "mine", team.name)

    mirror = await team.claim("mine", lambda m: bool(m.metadata.deletion_timestamp), "is being deleted")
    assert held_by("holder", mirror)
    await team.delete(PODS, "holder")
    await team.bound("next")
    uid = mirror.metadata.uid
    await team.claim("mine", lambda m: m.metadata.uid != uid and not devices_of(m), "is recreated")
    await team.create(pod("holder", claims={"gpu": "mine"}))
    await team.waits("holder", reasons.NOTHING_VIABLE)
    await team.delete(PODS, "next")
    await team.bound("holder")
    await team.create(pod("next", templates={"gpu": "one"}))


async def test_the_device_of_a_claim_that_was_forced_away_is_its_pods_until_that_ends(
    waiting: Namespace, parley: Parley
) -> None:
    team = waiting
    await team.create(claim("mine"))
    await holder_and_next(team, pod("holder", claims={"gpu": "mine"}))

    await team.client.delete(CLAIMS, "mine", team.name)
    await team.client.patch(CLAIMS, "mine", {"metadata": {"finalizers": None}}, team.name)
    await team.claim("mine", lambda m: bool(m.metadata.deletion_timestamp), "is deleted with its claim")
    await parley.kill()
    await parley.start()

    await team.waits("next", reasons.NOTHING_VIABLE)
    assert held_by("holder", await team.client.get(BUILTIN_CLAIMS, "mine", team.name))
    await team.create(claim("mine"))
    await team.parley_claim(
        "mine",
        lambda c: any(one.reason == reasons.CLAIM_BEING_DELETED for one in c.status.conditions),
        "waits for the earlier one",
    )


async def test_a_mirrored_template_that_was_deleted_is_made_again(team: Namespace, devices: Devices) -> None:
    await devices(node_0=1)
    await team.create(template("one"), pod("first", templates={"gpu": "one"}))
    await team.bound("first")
    await team.delete(PODS, "first")

    await team.client.delete(BUILTIN_TEMPLATES, "one", team.name)
    await team.create(pod("second", templates={"gpu": "one"}))

    await team.bound("second")


async def test_an_allocation_that_somebody_altered_is_refused_by_the_api(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=2)
    await team.create(template("one"), pod("first", templates={"gpu": "one"}))
    await team.bound("first")
    (mirror,) = await team.mirrors("first")
    other = {"request": "exclusive", "driver": "device.parley.dev", "pool": "node-0", "device": "gpu-1"}

    with pytest.raises(ApiError, match=r"field (cannot be modified once set|is immutable)"):
        await team.client.patch(
            BUILTIN_CLAIMS,
            mirror.metadata.name,
            {"status": {"allocation": {"devices": {"results": [other]}}}},
            team.name,
            subresource="status",
        )
