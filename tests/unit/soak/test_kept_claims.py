"""When the soak's rules about kept claims let one be freed before its deadline, and which are kept too long."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.soak.drivers.variants import starting_over
from tests.soak.kinds.claims import claim
from tests.soak.kinds.names import NAMESPACE
from tests.soak.plan import Plan
from tests.soak.rules.kept_claims import LATELY, kept_too_long

from parley.api.resources import CLAIMS, NODES
from parley.kube.memory.managed_fields import UPDATE, Manager

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


@pytest.mark.parametrize(
    ("said", "is_excused"),
    [({"whenUnused": {"keepSeconds": 60}}, False), ({"whenUnused": None}, True)],
    ids=["some time", "no time"],
)
def test_the_shortest_that_the_class_has_said_lately_counts(
    play: Play, said: dict[str, Any], is_excused: bool
) -> None:
    """A controller may have seen the pod's end before the change of the class, or after it."""

    async def story(world: Any) -> None:
        await kept(world)
        world.change_class("lasting", **said)
        world.change_class("lasting", whenUnused={"keepSeconds": 240})
        world.rules.kept_claims.ended("p", [world.body(CLAIMS, "cache")["metadata"]["uid"]], LATELY + 1)
        free(world)

        assert bool(world.faults) is not is_excused

    play(story)


def test_what_the_class_said_long_before_does_not(play: Play) -> None:
    async def story(world: Any) -> None:
        await kept(world)
        world.change_class("lasting", whenUnused=None)
        world.change_class("lasting", whenUnused={"keepSeconds": 240})
        await world.wait(LATELY + 1)
        world.rules.kept_claims.ended("p", [world.body(CLAIMS, "cache")["metadata"]["uid"]], 2 * LATELY + 2)
        free(world)

        assert world.faults

    play(story)


def test_it_may_be_freed_after_its_deadline(play: Play) -> None:
    async def story(world: Any) -> None:
        await kept(world)
        await world.wait(240)
        free(world)

        assert not world.faults

    play(story)


def test_it_may_be_freed_when_it_is_being_deleted(play: Play) -> None:
    async def story(world: Any) -> None:
        await kept(world)
        finalizers = {"metadata": {"finalizers": ["parley.dev/in-use"]}}
        world.server.patch(CLAIMS, "cache", finalizers, NAMESPACE, Manager("controller-1", UPDATE, ""))
        world.server.delete(CLAIMS, "cache", NAMESPACE)
        free(world)

        assert not world.faults

    play(story)


NOW = datetime(2026, 1, 1, 0, 1, 4, tzinfo=UTC)
OVER, COMING = "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"


def unused(name: str = "cache", meta: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A claim that is allocated and has no users."""
    body = claim(name)
    body["metadata"].update(meta or {})
    return {**body, "status": {**ALLOCATED, **status}}


def true(type_: str) -> list[dict[str, str]]:
    return [{"type": type_, "status": "True"}]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (unused(keptUntil=OVER), [f"claim cache, until {OVER}, and it is 00:01:04"]),
        (unused(keptUntil=COMING), []),
        (unused(keptUntil=OVER, reservedFor=[{"uid": "p"}]), []),
        (unused(keptUntil=OVER, conditions=true("Needed")), []),
        (unused("standing"), []),
        (unused("disk"), ["claim disk, without a deadline"]),
        (unused("disk", reservedFor=[{"uid": "p"}]), []),
        (unused("disk", conditions=true("Needed")), []),
        (unused("disk", conditions=true("Releasing")), []),
        (unused("disk", deallocationRequested=True), []),
        (unused("disk", meta={"deletionTimestamp": OVER}), []),
        (unused("disk", allocation=None), []),
        (unused("disk", meta={"labels": {"parley.dev/generated-for": "gpu"}}), []),
    ],
    ids=[
        "after its deadline",
        "before its deadline",
        "in use",
        "needed",
        "immediate",
        "without a deadline",
        "without a deadline, in use",
        "without a deadline, needed",
        "being released",
        "being deallocated",
        "being deleted",
        "not allocated",
        "for a generated claim",
    ],
)
def test_at_rest_a_claim_without_users_is_kept_until_its_deadline_only(
    body: dict[str, Any], found: list[str]
) -> None:
    assert list(kept_too_long([body], NOW)) == found
