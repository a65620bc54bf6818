"""Forced deletions at a real API server: the record of what is not free yet, and the node plugin's answer."""

import pytest
from tests.cluster.manifests import claim, pod, template
from tests.cluster.namespace import Namespace
from tests.cluster.watching import until
from tests.integration.door.conftest import Devices, Parley

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import ResourceClaim
from parley.api.names import (
    ALLOCATION_ANNOTATION,
    CLAIM_UID_ANNOTATION,
    RELEASE_RECORD_LABEL,
    RELEASING_FROM_ANNOTATION,
    RELEASING_LABEL,
)
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.control.receipts import is_asked
from parley.kube.client import Forbidden
from parley.kube.http import HttpClient
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

RECEIPT = {
    "metadata": {
        "labels": {RELEASING_LABEL: None},
        "annotations": {RELEASING_FROM_ANNOTATION: None, CLAIM_UID_ANNOTATION: None},
    }
}


async def asked(team: Namespace) -> ResourceClaim:
    """The claim whose node may answer, as soon as there is one."""
    found = await until(
        team.client,
        CLAIMS,
        lambda claims: any(map(is_releasing, claims.values())),
        "a receipt is asked for",
        namespace=team.name,
    )
    (only,) = filter(is_releasing, found.values())
    return only


def is_releasing(record: ResourceClaim) -> bool:
    """Whether the node may answer and people can read what is waited for: two writes, in either order."""
    return is_asked(record) and record.status.state == "releasing"


async def deleted_by_force(team: Namespace, name: str) -> None:
    await team.client.delete(PODS, name, team.name, grace_period_seconds=0)
    await team.gone(PODS, name)


@pytest.mark.parametrize("restarted", [False, True], ids=["the same controller", "another controller"])
async def test_a_generated_claims_device_is_free_when_the_node_has_deleted_its_record(
    team: Namespace, devices: Devices, parley: Parley, restarted: bool
) -> None:
    await devices(node_0=1)
    await team.create(template("one"), pod("lost", templates={"gpu": "one"}))
    await team.bound("lost")
    (mirror,) = (await team.client.list(BUILTIN_CLAIMS, team.name)).items

    await deleted_by_force(team, "lost")
    record = await asked(team)
    if restarted:
        await team.gone(BUILTIN_CLAIMS, mirror.metadata.name)
        await parley.kill()
        await parley.start()
    await team.create(pod("next", templates={"gpu": "one"}))

    await team.waits("next", reasons.NOTHING_VIABLE)
    assert record.metadata.annotations[RELEASING_FROM_ANNOTATION] == "node-0"
    assert record.metadata.annotations[CLAIM_UID_ANNOTATION] == mirror.metadata.uid
    assert (record.status.state, record.status.reserved_for) == ("releasing", ())
    await team.client.delete(CLAIMS, record.metadata.name, team.name, uid=record.metadata.uid)
    await team.bound("next")


async def test_a_named_claim_is_given_to_the_next_pod_when_the_node_has_taken_its_label_off(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(claim("mine"), pod("lost", claims={"gpu": "mine"}))
    await team.bound("lost")
    mirror = await team.client.get(BUILTIN_CLAIMS, "mine", team.name)

    await deleted_by_force(team, "lost")
    mine = await asked(team)
    await team.create(pod("next", claims={"gpu": "mine"}))

    assert "node node-0" in await team.waits("next", reasons.RELEASING)
    assert mine.metadata.annotations[CLAIM_UID_ANNOTATION] == mirror.metadata.uid
    assert (mine.status.state, mine.status.reserved_for) == ("releasing", ())
    assert (await team.client.get(BUILTIN_CLAIMS, "mine", team.name)).status.allocation is None
    await team.client.patch(CLAIMS, "mine", RECEIPT, team.name)
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
    await asked(team)
    assert "node node-0" in await team.waits("next", reasons.RELEASING)
    assert (await team.client.get(BUILTIN_CLAIMS, "mine", team.name)).status.allocation is None
    await team.client.patch(CLAIMS, "mine", RECEIPT, team.name)
    await team.bound("next")


def is_told_to_wait_its_turn(pod: Pod) -> bool:
    return any("Parley says whose turn it is" in condition.message for condition in pod.status.conditions)


@pytest.mark.parametrize("mark", ["label", "annotation"])
async def test_nobody_else_makes_a_device_count_as_taken(cluster: Cluster, team: Namespace, mark: str) -> None:
    body = claim("mine")
    if mark == "label":
        body["metadata"]["labels"] = {RELEASE_RECORD_LABEL: "true"}
    else:
        body["metadata"]["annotations"] = {ALLOCATION_ANNOTATION: "{}"}
    here = ("-n", team.name)
    cluster.kubectl("create", "role", "editor", "--verb=create", "--resource=resourceclaims.parley.dev", *here)
    cluster.kubectl("create", "rolebinding", "editor", "--role=editor", "--user=editor", *here)
    async with HttpClient.from_kubeconfig(str(cluster.kubeconfig_for("editor"))) as editor:
        with pytest.raises(Forbidden, match="leave them as they are, or grant the verb allocate"):
            await editor.create(CLAIMS.untyped(), body, team.name)
