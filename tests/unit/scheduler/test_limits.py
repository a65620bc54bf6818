"""Limits of a class: what a namespace may hold of it, judged in the negotiation, and in words."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.resources import BUILTIN_CLAIMS, CLASSES, NAMESPACES, PODS, TEMPLATES

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

TWO_CLAIMS = [{"claims": 2}]


async def begin(world: World, limits: Sequence[Mapping[str, Any]], places: int = 100, **class_: Any) -> Behaviour:
    """One node with many places, and the class shelf with these limits."""
    behaviour = Behaviour(other=places)
    await world.add_node("a")
    await add_shelf_class(world, limits=list(limits), **class_)
    world.start_parley(drivers=[ShelfDriver(behaviour)])
    return behaviour


async def running(world: World) -> list[str]:
    pods = (await world.client.list(PODS)).items
    return sorted(pod.metadata.name for pod in pods if pod.spec.node_name)


async def waiting_for(world: World, pod: str) -> tuple[str, str]:
    status = (await world.scheduling(pod)).status
    return status.waiting_for, status.message


async def set_limits(world: World, *limits: dict[str, Any]) -> None:
    await world.client.patch(CLASSES, "shelf", {"limits": list(limits)})


def test_the_pod_over_the_limit_waits_and_its_words_say_what_to_do(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, TWO_CLAIMS)
        for name in ("p", "q", "r"):
            await world.add_pod(name, "shelf")
            await world.settle()
        assert await running(world) == ["p", "q"]
        message = (
            "namespace default holds 2 of 2 claims that class shelf allows it, 1 more wanted: "
            "delete pods or claims that hold some, or raise the class's limits[0].claims"
        )
        assert await waiting_for(world, "r") == ("LimitReached", message)
        assert await world.events_on("r") == [("LimitReached", message)]

    play(scenario)


@pytest.mark.scheduling_paths("native")  # a scheduler with an extender has an order of its own
@pytest.mark.parametrize("end", ["delete_pod", "finish_pod"])
def test_when_a_pod_ends_the_next_one_gets_its_part_of_the_limit(play: Any, end: str) -> None:
    async def scenario(world: World) -> None:
        await begin(world, [{"claims": 1}])
        for name in ("p", "q", "r"):
            await world.add_pod(name, "shelf")
            await world.settle()
        assert await running(world) == ["p"]
        await getattr(world, end)("p")
        await world.settle()
        assert "q" in await running(world)
        assert "r" not in await running(world)
        await world.delete_pod("q")
        await world.settle()
        assert "r" in await running(world)

    play(scenario)


def test_units_are_counted_as_the_driver_counts_them(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, [{"units": 5}])
        await world.add_template("three", "shelf", count=3)
        await world.add_pod("p", "three")
        await world.settle()
        await world.add_pod("q", "three")
        await world.settle()
        assert (await waiting_for(world, "q"))[1].startswith(
            "namespace default holds 3 of 5 units that class shelf allows it, 3 more wanted: "
        )
        await world.add_pod("r", "shelf", "shelf")
        await world.settle()
        assert await running(world) == ["p", "r"]

    play(scenario)


def test_a_pod_whose_own_claims_exceed_the_limit_holds_none_of_them(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, TWO_CLAIMS)
        await world.add_pod("p", "shelf", "shelf", "shelf")
        await world.settle()
        assert (await waiting_for(world, "p"))[1].startswith("namespace default wants 3 claims of class shelf")
        assert behaviour.calls["allocate"] == 0
        await world.add_pod("q", "shelf", "shelf")
        await world.settle()
        assert await running(world) == ["q"]

    play(scenario)


def test_a_shared_claim_counts_once_however_many_pods_use_it(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, [{"claims": 1}], shareable=True)
        await world.add_claim("common", "shelf")
        for i in range(4):
            await world.add_pod(f"p{i}", claims=["common"])
        await world.settle()
        assert len(await running(world)) == 4

    play(scenario)


def test_the_entry_that_names_the_namespace_holds_or_else_the_one_that_names_none(play: Any) -> None:
    async def in_namespace(world: World, namespace: str) -> int:
        template = {"resourceClassName": "shelf", "parameters": {}}
        meta = {"name": "shelf", "namespace": namespace}
        await world.client.create(TEMPLATES, _body(TEMPLATES, meta, {"spec": template}), namespace)
        for i in range(4):
            spec = {
                "containers": [{"name": "main", "image": "none"}],
                "resourceClaims": [{"name": "s", "resourceClaimTemplateName": "shelf"}],
            }
            meta = {"name": f"{namespace}-{i}", "namespace": namespace}
            await world.client.create(PODS, _body(PODS, meta, spec), namespace)
        await world.settle()
        return len([name for name in await running(world) if name.startswith(namespace)])

    async def scenario(world: World) -> None:
        limits: list[dict[str, Any]] = [
            {"claims": 1},
            {"namespaces": ["team-a", "team-b"], "claims": 2},
            {"namespaces": ["free"]},
        ]
        await begin(world, limits)
        counts = {name: await in_namespace(world, name) for name in ("team-a", "team-b", "other", "free")}
        assert counts == {"team-a": 2, "team-b": 2, "other": 1, "free": 4}

    play(scenario)


def _body(resource: Any, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def test_limits_that_are_raised_lowered_or_lifted_while_pods_wait(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, [{"claims": 1}])
        for i in range(6):
            await world.add_pod(f"p{i}", "shelf")
            await world.settle()
        assert await running(world) == ["p0"]
        await set_limits(world, {"claims": 3})
        await world.settle()
        assert await running(world) == ["p0", "p1", "p2"]
        await set_limits(world, {"claims": 1})
        await world.settle()
        await world.delete_pod("p0")
        await world.settle()
        assert await running(world) == ["p1", "p2"]
        await world.add_pod("late", "shelf")
        await world.settle()
        assert (await waiting_for(world, "late"))[1].startswith("namespace default holds 2 of 1 claims")
        await set_limits(world)
        await world.settle()
        assert await running(world) == ["late", "p1", "p2", "p3", "p4", "p5"]

    play(scenario)


@pytest.mark.parametrize("placement", ["Optimistic", "Exact"])
def test_pods_that_come_at_once_never_pass_together(play: Any, placement: str) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, TWO_CLAIMS, placement=placement)
        behaviour.trouble = slow(3)
        for i in range(6):
            await world.add_pod(f"p{i}", "shelf")
        for _ in range(100):
            await asyncio.sleep(0.5)
            assert behaviour.calls["allocate"] - behaviour.calls["deallocate"] <= 2
            assert len(await running(world)) <= 2
        await world.settle()
        assert len(await running(world)) == 2
        codes = [await waiting_for(world, f"p{i}") for i in range(6)]
        assert [code for code, _ in codes].count("LimitReached") == 4

    play(scenario)


def test_a_pod_that_waits_for_the_limit_goes_on_when_the_allocation_before_it_failed(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, [{"claims": 1}])
        behaviour.trouble = slow(5, RuntimeError("jammed"))
        await world.add_pod("first", "shelf")
        await asyncio.sleep(1)
        await world.add_pod("second", "shelf")
        await asyncio.sleep(1)
        assert (await waiting_for(world, "second"))[0] == "LimitReached"
        behaviour.trouble = slow(5)
        await world.delete_pod("first")
        await world.settle()
        assert await running(world) == ["second"]

    play(scenario)


GOLD = {"namespaceSelector": {"matchLabels": {"tier": "gold"}}, "claims": 2}
ALL = {"claims": 1}


async def label(world: World, **labels: str | None) -> None:
    await world.client.patch(NAMESPACES, "default", {"metadata": {"labels": labels}})
    await world.settle()


def test_a_namespace_whose_labels_change_is_judged_by_another_limit(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.client.create(NAMESPACES, {"metadata": {"name": "default"}})
        await begin(world, [ALL, GOLD])
        for name in ("p", "q", "r"):
            await world.add_pod(name, "shelf")
            await world.settle()
        assert await running(world) == ["p"]
        assert "raise the class's limits[0].claims" in (await waiting_for(world, "q"))[1]
        await label(world, tier="gold")
        assert await running(world) == ["p", "q"]
        message = (
            "namespace default holds 2 of 2 claims that class shelf allows each namespace with the labels "
            "tier=gold, 1 more wanted: delete pods or claims that hold some, or raise the class's limits[1].claims"
        )
        assert await waiting_for(world, "r") == ("LimitReached", message)
        await label(world, tier=None)
        await world.delete_pod("p")
        await world.settle()
        assert await running(world) == ["q"], "what was allocated stays, and nothing new is"

    play(scenario)


def test_namespaces_are_read_only_where_a_class_goes_by_their_labels(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.client.create(NAMESPACES, {"metadata": {"name": "default"}})
        await begin(world, [ALL])
        await world.settle()
        assert world.controller is not None
        assert NAMESPACES not in [cache.resource for cache in world.controller.caches]
        await world.add_pod("p", "shelf")
        await world.add_pod("q", "shelf")
        await world.settle()
        await set_limits(world, ALL, {"namespaceSelector": {}, "claims": 3})
        await world.settle()
        assert await running(world) == ["p", "q"]
        assert NAMESPACES in [cache.resource for cache in world.controller.caches]

    play(scenario)


def test_without_the_namespaces_labels_a_class_that_goes_by_them_gives_nothing_and_others_do(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, [ALL, GOLD])
        await add_shelf_class(world, "other")
        await world.add_pod("p", "shelf")
        await world.add_pod("q", "other")
        await world.settle()
        assert await running(world) == ["q"]
        code, words = await waiting_for(world, "p")
        assert (code, words) == (
            "LimitReached",
            "the labels of namespace default are not known, and class shelf has limits with a namespaceSelector: "
            "let the controller list and watch namespaces",
        )
        await world.client.create(NAMESPACES, {"metadata": {"name": "default"}})
        await world.settle()
        assert await running(world) == ["p", "q"]

    play(scenario)


def test_what_a_claim_counts_for_stays_known_when_it_was_made_again_and_then_its_class(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, [{"units": 4}])
        await world.add_template("three", "shelf", count=3)
        await world.add_pod("p", "three")
        await world.settle()
        (mirror,) = await world.mirrors()
        await world.client.delete(BUILTIN_CLAIMS, mirror.metadata.name, "default")
        await world.settle(70)
        assert [made.metadata.name for made in await world.mirrors()] != [mirror.metadata.name]
        await world.client.delete(CLASSES, "shelf")
        await asyncio.sleep(1)
        await world.add_class("shelf", driverName=ShelfDriver.name, limits=[{"units": 4}])
        await world.add_template("two", "shelf", count=2)
        await world.add_pod("q", "two")
        await world.settle()
        assert await running(world) == ["p"]

    play(scenario)
