"""What is explained about claims that can be used on the nodes that have some label."""

from tests.unit.explain.conftest import Play, explained
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.shelf import ZONE, Behaviour, ZoneDriver, add_shelf_class

from parley.api import reasons
from parley.api.resources import NODES
from parley.explain.text import claim_state


def test_a_pod_hears_by_which_labels_its_claim_goes_and_which_nodes_have_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("n0", labels={ZONE: "a"})
        await world.add_node("n1", labels={ZONE: "b"})
        await add_shelf_class(world, shareable=True)
        await world.add_claim("common", "shelf")
        world.start_parley(drivers=[ZoneDriver(Behaviour(places={"n0": 9}), {"n0": "a"})])
        await world.add_pod("uses", claims=["common"])
        await world.settle()
        await world.client.patch(NODES, "n0", {"spec": {"unschedulable": True}})
        await world.add_pod("wants", claims=["common"])
        await world.settle(10)

        told = await explained(world, "wants")

        where = f"allocated on nodes with {ZONE}=a"
        (state,) = [claim_state(claim, told) for claim in told.claims]
        assert state.startswith(where)
        assert [(row.node, [cell.why for cell in row.claims]) for row in told.nodes] == [
            ("n0", ["allocated"]),
            ("n1", [where]),
        ]
        assert told.code == reasons.NO_CANDIDATES  # and not ClaimStranded: a node of the zone may still come
        assert told.message == (
            "0 of 2 nodes are available: node n0: cordoned. "
            "Remedy: change what rules out one of these nodes, or add a node. "
            f"Claim default/common is {where}"
        )

        await world.client.patch(NODES, "n1", {"metadata": {"labels": {ZONE: "a"}}})
        await world.settle(10)
        assert (await world.pod("wants")).spec.node_name == "n1"

    play(scenario)
