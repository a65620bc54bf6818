"""Claims that are allocated at once, without a pod, under the real scheduler and the real claim controller."""

import pytest
from tests.cluster.manifests import Manifest, apart_from, claim, pod, template
from tests.cluster.namespace import Namespace, devices_of
from tests.integration.native.conftest import Devices, Parley
from tests.support.conditions import ready

from parley.api import reasons
from parley.api.models import ResourceClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.sdk import Device

pytestmark = pytest.mark.cluster

LOUD = {"habit": "loud"}
NODE_0 = frozenset({Device("node-0", "gpu-0")})


def immediate(name: str) -> Manifest:
    made = claim(name)
    made["spec"]["allocationMode"] = "Immediate"
    return made


def holds_node_0(claim: ResourceClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and [d.pool for h in allocation.handles for d in h.devices] == ["node-0"]


def allocated(claim: ResourceClaim) -> bool:
    return holds_node_0(claim) and ready(claim) == "Ready" and not claim.status.reserved_for


async def is_free(team: Namespace) -> None:
    await team.parley_claim("mine", allocated, "is allocated on node-0 and nobody's")
    await team.claim("mine", lambda m: not (m.status.reserved_for or m.status.allocation), "is free")


async def test_pods_use_a_claim_one_after_the_other_and_it_stays_until_it_is_deleted(
    team: Namespace, devices: Devices, parley: Parley
) -> None:
    await team.create(immediate("mine"))
    told = await team.parley_claim(
        "mine", lambda c: ready(c) not in ("", reasons.CLAIM_PENDING), "says why it waits"
    )
    (condition,) = [c for c in told.status.conditions if c.type == reasons.ALLOCATED]
    assert (condition.status, condition.reason) == ("False", reasons.NOTHING_VIABLE)

    await devices(node_0=1)
    await is_free(team)
    await team.create(pod("first", claims={"gpu": "mine"}))
    assert (await team.bound("first")).spec.node_name == "node-0"
    for name in ("second", "third"):
        await team.create(pod(name, claims={"gpu": "mine"}))
        await team.waits(name, reasons.CLAIM_IN_USE)

    for done, following in (("first", "second"), ("second", "third")):
        await (team.delete(PODS, done) if done == "first" else team.finish(done))
        assert (await team.bound(following)).spec.node_name == "node-0"
        mirror = await team.claim("mine", lambda m: bool(m.status.allocation), "is allocated")
        assert [user.name for user in mirror.status.reserved_for] == [following]
        assert devices_of(mirror) == NODE_0

    await parley.kill()
    await team.finish("third")
    await parley.start()
    await is_free(team)
    await team.create(template("one"), pod("other", templates={"gpu": "one"}))
    await team.waits("other", reasons.NOTHING_VIABLE)

    await team.delete(CLAIMS, "mine")

    await team.gone(BUILTIN_CLAIMS, "mine")
    assert (await team.bound("other")).spec.node_name == "node-0"


async def test_the_claim_stays_while_the_scheduler_refuses_the_pod_on_its_node(
    team: Namespace, devices: Devices
) -> None:
    await devices(node_0=1)
    await team.create(immediate("mine"), pod("loud", labels=LOUD, nodeName="node-0"))
    await is_free(team)

    await team.create(pod("quiet", claims={"gpu": "mine"}, affinity=apart_from(LOUD)))

    assert await team.waits("quiet", reasons.SCHEDULER_REFUSED) == (
        "node node-0: viable, but refused by the scheduler. "
        "See the pod's own conditions for the scheduler's reasons; Parley offers them again"
    )
    await team.parley_claim("mine", holds_node_0, "is still allocated on node-0")

    await team.delete(PODS, "loud")

    assert (await team.bound("quiet")).spec.node_name == "node-0"
    await team.parley_claim("mine", lambda c: bool(c.status.reserved_for), "is reserved for the pod")
