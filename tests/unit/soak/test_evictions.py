"""Of which classes the soak's rule about evictions wants a controller to know that they do not let pods be
evicted: of all whose changes it has seen, but for those of claims that were deleted and are not there again."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.soak.cluster.observed import Step
from tests.soak.cluster.processes import acting_as
from tests.soak.kinds.names import NAMESPACE
from tests.soak.rules.evictions import LATELY, UNSEEN, Evictions
from tests.soak.rules.mirrors import Json

from parley.api.resources import BUILTIN_CLAIMS, PODS

Play = Callable[[Any], None]
VICTIM, PREEMPTOR = "p1-kept-too", "p2-one"
KEPT = f"{VICTIM}-gpu-1"
SPARES = [f"wrongly evicted: pod {VICTIM}: class kept does not say so"]


class Evicted:
    """A pod that runs with a claim of a class for which nobody is evicted, and one of higher priority."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._rules = world.rules
        self.evictions = Evictions(world.rules.fault, lambda _uid, _name: None)
        world.observe = self._observe
        world.class_("gpu", preemption="LowerPriority")
        world.class_("kept", preemption="Never")
        self._victim = world.pod(VICTIM, "kept-too")
        self._preemptor = world.pod(PREEMPTOR, "one", priority=5)
        world.offer(KEPT, ["a"])
        world.fulfil(KEPT, "a")

    def _observe(self, step: Step) -> None:
        self._rules.observe(step)
        self.evictions.observe(step)

    def delete_claim(self, who: str) -> Json:
        body: Json = self._world.body(BUILTIN_CLAIMS, KEPT)
        with acting_as(who):
            self._world.server.delete(BUILTIN_CLAIMS, KEPT, NAMESPACE)
        return body

    def create_claim(self, body: Json) -> None:
        kept = {name: body["metadata"][name] for name in ("name", "annotations", "ownerReferences")}
        self._world.create(BUILTIN_CLAIMS, {**body, "metadata": kept, "status": {}}, "claim-controller")

    def evict(self, *believed: str) -> None:
        uid = self._victim["metadata"]["uid"]
        pod = SimpleNamespace(uid=self._preemptor["metadata"]["uid"])
        nomination: Any = SimpleNamespace(pod=pod, terminating=frozenset({uid}))
        self.evictions.asked(uid, [nomination], believed)
        with acting_as("controller-1"):
            self._world.server.post(PODS, VICTIM, "eviction", {"deleteOptions": {}}, NAMESPACE)


def test_a_pod_is_not_evicted_whose_class_does_not_allow_it(play: Play) -> None:
    async def story(world: Any) -> None:
        Evicted(world).evict()

        assert world.faults == SPARES

    play(story)


def test_nor_if_its_claim_was_only_cleared(play: Play) -> None:
    async def story(world: Any) -> None:
        evicted = Evicted(world)
        world.clear(KEPT, "meddler")
        evicted.evict()

        assert world.faults == SPARES

    play(story)


@pytest.mark.parametrize("cleared", [False, True])
def test_it_may_be_while_its_claim_is_gone(play: Play, cleared: bool) -> None:
    async def story(world: Any) -> None:
        evicted = Evicted(world)
        if cleared:
            world.clear(KEPT, "meddler")
        evicted.delete_claim("meddler")
        evicted.evict()

        assert not world.faults

    play(story)


def test_and_while_a_controller_may_not_have_seen_that_it_is_there_again(play: Play) -> None:
    async def story(world: Any) -> None:
        evicted = Evicted(world)
        evicted.create_claim(evicted.delete_claim("meddler"))
        await world.wait(UNSEEN - 1)
        evicted.evict()

        assert not world.faults

    play(story)


def test_but_not_after_that(play: Play) -> None:
    async def story(world: Any) -> None:
        evicted = Evicted(world)
        evicted.create_claim(evicted.delete_claim("meddler"))
        await world.wait(UNSEEN + 1)
        evicted.evict()

        assert world.faults == SPARES

    play(story)


async def changed(world: Any, seconds: float) -> Evicted:
    """The class was changed so many seconds ago: before that its pods could be evicted."""
    evicted = Evicted(world)
    world.change_class("kept", preemption="LowerPriority")
    await world.wait(60)
    world.change_class("kept", preemption="Never")
    await world.wait(seconds)
    return evicted


@pytest.mark.parametrize(("seconds", "believed"), [(LATELY - 1, ()), (3600.0, ("kept",))])
def test_what_a_class_said_when_the_plan_was_made_counts_or_what_a_cache_that_is_behind_says(
    play: Play, seconds: float, believed: tuple[str, ...]
) -> None:
    async def story(world: Any) -> None:
        (await changed(world, seconds)).evict(*believed)

        assert not world.faults

    play(story)


def test_a_controller_that_has_seen_the_change_goes_by_it(play: Play) -> None:
    async def story(world: Any) -> None:
        (await changed(world, LATELY + 1)).evict()

        assert world.faults == SPARES

    play(story)
