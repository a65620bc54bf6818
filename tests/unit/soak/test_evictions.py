"""Until when the soak's rule about evictions lets a pod be evicted whose claim was deleted: nobody need know of
its class before it is there again."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.soak.cluster.observed import Step
from tests.soak.cluster.processes import acting_as
from tests.soak.kinds.names import NAMESPACE
from tests.soak.rules.evictions import LATELY, Evictions
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

    def evict(self) -> None:
        uid = self._victim["metadata"]["uid"]
        pod = SimpleNamespace(uid=self._preemptor["metadata"]["uid"])
        self.evictions.asked(uid, [SimpleNamespace(pod=pod, terminating=frozenset({uid}))])  # type: ignore[list-item]
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
        await world.wait(LATELY - 1)
        evicted.evict()

        assert not world.faults

    play(story)


def test_but_not_after_that(play: Play) -> None:
    async def story(world: Any) -> None:
        evicted = Evicted(world)
        evicted.create_claim(evicted.delete_claim("meddler"))
        await world.wait(LATELY + 1)
        evicted.evict()

        assert world.faults == SPARES

    play(story)
