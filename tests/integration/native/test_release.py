"""Forced deletions at a real API server: the record of what is not free yet, and the node plugin's answer."""

import uuid
from collections.abc import Iterable

import pytest
from tests.cluster.manifests import claim, pod, resource_class, template
from tests.cluster.namespace import NAMESPACES, Namespace
from tests.cluster.watching import until
from tests.integration.native.conftest import Devices, Parley
from tests.support.conditions import ready

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import ClaimRelease, ResourceClaim
from parley.api.names import (
    CONDITION_RELEASING,
)
from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, PODS
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client

pytestmark = pytest.mark.cluster


async def asked(team: Namespace, *nodes: str) -> list[ClaimRelease]:
    """The releases that these nodes may answer for claims of the namespace, as soon as all are there."""

    def may_answer(releases: Iterable[ClaimRelease]) -> list[ClaimRelease]:
        own = [one for one in releases if one.spec.claim.namespace == team.name and one.status.allocation_cleared]
        return sorted(own, key=lambda release: release.spec.node_name)

    found = await until(
        team.client,
        CLAIM_RELEASES,
        lambda seen: [release.spec.node_name for release in may_answer(seen.values())] == sorted(nodes),
        f"receipts of {nodes} are asked for",
    )
    return may_answer(found.values())


async def answer(team: Namespace, release: ClaimRelease) -> None:
    """Give the receipt, as the node's plugin does."""
    await team.client.delete(CLAIM_RELEASES, release.metadata.name, uid=release.metadata.uid)


def is_releasing(claim: ResourceClaim) -> bool:
    """Whether people can read what is waited for."""
    told = [condition.type for condition in claim.status.conditions]
    return ready(claim) == "Releasing" and CONDITION_RELEASING in told


async def deleted_by_force(team: Namespace, name: str) -> None:
    await team.client.delete(PODS, name, team.name, grace_period_seconds=0)
    await team.gone(PODS, name)


@pytest.mark.parametrize("restarted", [False, True], ids=["the same controller", "another controller"])
async def test_a_generated_claims_device_is_free_when_the_node_has_answered(
    team: Namespace, devices: Devices, parley: Parley, restarted: bool
) -> None:
    await devices(node_0=1)
    await team.create(template("one"), pod("lost", templates={"gpu": "one"}))
    await team.bound("lost")
    (mirror,) = (await team.client.list(BUILTIN_CLAIMS, team.name)).items

    await deleted_by_force(team, "lost")
    (release,) = await asked(team, "node-0")
    if restarted:
        await team.gone(BUILTIN_CLAIMS, mirror.metadata.name)
        await parley.kill()
        await parley.start()
    await team.create(pod("next", templates={"gpu": "one"}))

    await team.waits("next", reasons.NOTHING_VIABLE)
    assert release.spec.claim.uid == mirror.metadata.uid
    await answer(team, release)
    await team.bound("next")


async def test_a_namespace_that_is_deleted_leaves_the_device_taken_until_the_node_has_answered(
    admin: Client, team: Namespace, devices: Devices, parley: Parley
) -> None:
    await devices(node_0=1)
    doomed = Namespace(admin, f"doomed-{uuid.uuid4().hex[:6]}", grace=0)
    await admin.create(NAMESPACES, {"metadata": {"name": doomed.name}})
    await doomed.create(template("one"), pod("lost", templates={"gpu": "one"}))
    await doomed.bound("lost")

    await deleted_by_force(doomed, "lost")
    (release,) = await asked(doomed, "node-0")
    await admin.delete(NAMESPACES, doomed.name)
    await until(admin, NAMESPACES, lambda seen: ("", doomed.name) not in seen, "the namespace is gone")
    await team.create(template("one"), pod("next", templates={"gpu": "one"}))

    await team.waits("next", reasons.NOTHING_VIABLE)
    await parley.kill()
    await parley.start()
    await team.create(pod("later", templates={"gpu": "one"}))
    await team.waits("later", reasons.NOTHING_VIABLE)
    await answer(doomed, release)
    await team.bound("next")


async def test_a_named_claim_is_given_to_the_next_pod_when_the_node_has_answered(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(claim("mine"), pod("lost", claims={"gpu": "mine"}))
    await team.bound("lost")
    mirror = await team.client.get(BUILTIN_CLAIMS, "mine", team.name)

    await deleted_by_force(team, "lost")
    (release,) = await asked(team, "node-0")
    mine = await team.parley_claim("mine", is_releasing, "is releasing")
    await team.create(pod("next", claims={"gpu": "mine"}))

    assert "node node-0" in await team.waits("next", reasons.RELEASING)
    assert release.spec.claim.uid == mirror.metadata.uid
    assert release.spec.holding_uid == mine.metadata.uid
    assert (ready(mine), mine.status.reserved_for) == ("Releasing", ())
    assert (await team.client.get(BUILTIN_CLAIMS, "mine", team.name)).status.allocation is None
    await answer(team, release)
    await team.bound("next")


async def test_nobody_gets_a_named_claim_while_no_controller_asks_for_the_receipt(
    team: Namespace, devices: Devices, parley: Parley
) -> None:
    await devices(node_0=1)
    await team.create(claim("mine"), pod("lost", claims={"gpu": "mine"}))
    await team.bound("lost")
    await parley.kill()

    await deleted_by_force(team, "lost")
    await team.claim("mine", lambda mirror: not mirror.status.reserved_for, "is reserved for nobody")
    await team.create(pod("next", claims={"gpu": "mine"}))

    await team.pod("next", is_told_to_wait_its_turn, "is kept out by the policy")
    assert (await team.client.get(BUILTIN_CLAIMS, "mine", team.name)).status.allocation is not None
    await parley.start()
    (release,) = await asked(team, "node-0")
    assert "node node-0" in await team.waits("next", reasons.RELEASING)
    assert (await team.client.get(BUILTIN_CLAIMS, "mine", team.name)).status.allocation is None
    await answer(team, release)
    await team.bound("next")


def is_told_to_wait_its_turn(pod: Pod) -> bool:
    return any("Parley decides which pod may use it" in condition.message for condition in pod.status.conditions)


async def test_both_nodes_of_a_shared_claim_are_waited_for_also_by_another_controller(
    team: Namespace, devices: Devices, parley: Parley
) -> None:
    seats = {"parameters": {"pool": 1}, "shareable": True}
    await parley.kill()
    parley.drivers = (TokensDriver,)
    await parley.start()
    await team.create(resource_class("seats", TokensDriver.name, **seats), claim("seat", "seats"))
    for node in ("node-0", "node-1"):
        on = {"kubernetes.io/hostname": node}
        await team.create(pod(f"on-{node}", claims={"seat": "seat"}, nodeSelector=on))
        await team.bound(f"on-{node}")

    await deleted_by_force(team, "on-node-0")
    await deleted_by_force(team, "on-node-1")
    first, second = await asked(team, "node-0", "node-1")
    await answer(team, first)
    await parley.kill()
    await parley.start()
    await team.create(pod("next", claims={"seat": "seat"}))

    assert "node node-1" in await team.waits("next", reasons.RELEASING)
    assert [release.metadata.uid for release in await asked(team, "node-1")] == [second.metadata.uid]
    await answer(team, second)
    await team.bound("next")
