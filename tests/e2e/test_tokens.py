"""Claims without a node part: the kubelet starts the containers although no plugin knows the driver."""

import pytest
from tests.cluster.manifests import claim, pod, resource_class, template
from tests.cluster.namespace import Namespace

from parley.api import reasons
from parley.api.resources import CLAIMS, PODS

pytestmark = pytest.mark.cluster

TOKENS = "tokens.parley.dev"


async def test_pods_share_out_a_pool_of_tokens_beside_their_devices(team: Namespace) -> None:
    parameters = {"pool": 2}
    await team.create(resource_class("licence", TOKENS, nodePart="None", parameters=parameters))
    await team.create(template("licence", "licence"), claim("mine", "licence"))

    await team.create(
        pod("both", templates={"gpu": "one", "licence": "licence"}), pod("named", claims={"licence": "mine"})
    )
    await team.runs("both")
    await team.runs("named")
    await team.create(pod("third", templates={"licence": "licence"}))
    words = "0 of 2 tokens of class licence free, 1 wanted"
    assert words in await team.waits("third", reasons.NOTHING_VIABLE)
    await team.delete(PODS, "named")

    await team.runs("third")

    await team.parley_claim("mine", lambda c: c.status.allocation is None, "holds nothing")
    for name in ("both", "third"):
        await team.delete(PODS, name)
    await team.delete(CLAIMS, "mine")
