"""A claim that can be used in a zone, under the real scheduler: nodes that are added to the zone count at once."""

import pytest
from tests.cluster.manifests import claim, pod, resource_class
from tests.cluster.namespace import Namespace
from tests.cluster.zones import ZONE, ZoneTokens, place
from tests.integration.native.conftest import Parley

from parley.api.resources import NODES, PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster


async def test_a_user_that_comes_later_lands_on_a_new_node_of_the_zone(
    team: Namespace, parley: Parley, cluster: Cluster
) -> None:
    await parley.kill()
    parley.drivers = (ZoneTokens,)
    await parley.start()
    await place(team.client, "node-0", "a")
    for node in ("node-1", "node-2"):
        await place(team.client, node, "b")
    fields = {"shareable": True, "nodePart": "None", "parameters": {"pool": 9}}
    await team.create(resource_class("seats", ZoneTokens.name, **fields), claim("ours", "seats"))
    await team.create(pod("first", claims={"seat": "ours"}, nodeSelector={ZONE: "a"}))
    assert (await team.bound("first")).spec.node_name == "node-0"
    mirror = await team.claim("ours", lambda mirror: mirror.status.allocation is not None, "is allocated")
    assert mirror.status.allocation is not None
    assert mirror.status.allocation.node_selector is not None
    (term,) = mirror.status.allocation.node_selector.node_selector_terms
    assert [(one.key, one.operator, one.values) for one in term.match_expressions] == [(ZONE, "In", ["a"])]
    assert not term.match_fields

    await place(team.client, "node-0", "a", cordoned=True)
    await parley.kill()
    await parley.start()
    await team.create(pod("second", claims={"seat": "ours"}))
    (late,) = cluster.add_fake_nodes(1, prefix="late-", labels={ZONE: "b"})
    try:
        await team.create(pod("beside", nodeName=late))  # the scheduler has looked at the node since
        unplaced = await team.pod("second", lambda seen: bool(seen.status.conditions), "was looked at")
        assert not unplaced.spec.node_name

        await place(team.client, late, "a")

        assert (await team.bound("second")).spec.node_name == late
        await place(team.client, late, "b")
        await team.create(pod("third", claims={"seat": "ours"}))
        looked_at = await team.pod("third", lambda seen: bool(seen.status.conditions), "was looked at")
        assert not looked_at.spec.node_name
        users = {user.name for user in (await team.claim("ours", lambda _: True, "is there")).status.reserved_for}
        assert users == {"first", "second"}
        await place(team.client, "node-0", "a")
        assert (await team.bound("third")).spec.node_name == "node-0"
        for name in ("first", "second", "third", "beside"):
            await team.delete(PODS, name)
    finally:
        await team.client.delete(NODES, late)
    await team.parley_claim("ours", lambda one: one.status.allocation is None, "holds nothing")
