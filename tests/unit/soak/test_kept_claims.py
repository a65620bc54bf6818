"""When the soak's rule about kept claims lets one be freed before its deadline: if it starts over, as its node is
gone."""

from collections.abc import Callable
from typing import Any

from tests.soak.drivers.variants import starting_over
from tests.soak.kinds.claims import claim
from tests.soak.plan import Plan
from tests.soak.rules.kept_claims import LATELY

from parley.api.resources import CLAIMS, NODES

Play = Callable[[Any], None]
ALLOCATED = {
    "driverName": "device.parley.dev",
    "allocation": {
        "handles": [
            {"driverName": "device.parley.dev", "data": {}, "devices": [{"pool": "a", "device": "gpu-0"}]}
        ],
        "availableOnNodes": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
        },
    },
}
FREED = [
    "freed while kept: claim cache had a/gpu-0 for a, now nothing, "
    "at 301: pod p ended at 301, and it is kept until 541"
]


async def kept(world: Any) -> None:
    """A claim whose last pod has just ended; its node has been there for long."""
    world.node("a")
    world.class_("lasting", whenUnused={"keepSeconds": 240})
    body = world.create(CLAIMS, claim("cache"))
    world.status(CLAIMS, "cache", ALLOCATED, "controller-1")
    await world.wait(LATELY + 1)
    world.rules.kept_claims.ended("p", [body["metadata"]["uid"]], LATELY + 1)


def free(world: Any) -> None:
    world.status(CLAIMS, "cache", {"allocation": None, "driverName": None}, "controller-1")


def test_a_kept_claim_is_not_freed_before_its_deadline(play: Play) -> None:
    async def story(world: Any) -> None:
        await kept(world)
        free(world)

        assert world.faults == FREED

    play(story)


def test_nor_if_its_node_is_gone_and_it_waits_for_that(play: Play) -> None:
    async def story(world: Any) -> None:
        world.rules.kept_claims.starting_over = starting_over(Plan(kept_claims=True))
        await kept(world)
        world.server.delete(NODES, "a", None)
        free(world)

        assert world.faults == FREED

    play(story)


def test_it_may_be_where_it_starts_over_then(play: Play) -> None:
    async def story(world: Any) -> None:
        world.rules.kept_claims.starting_over = starting_over(Plan(kept_claims=True, stranded_claims=True))
        await kept(world)
        world.server.delete(NODES, "a", None)
        free(world)

        assert not world.faults

    play(story)
