"""Whom the soak's rule about evictions lets a controller evict, for whom, and how. Of which classes it wants a
controller to know that they do not let pods be evicted: of all whose changes it has seen, but for those of claims
that were deleted and are not there again."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.soak.actions.priorities import SPARED
from tests.soak.cluster.observed import Step
from tests.soak.cluster.processes import acting_as
from tests.soak.kinds.names import NAMESPACE, typed
from tests.soak.kinds.pods import pod
from tests.soak.rules.evictions import LATELY, UNSEEN, Evictions
from tests.soak.rules.mirrors import Json

from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.kube.memory.evictions import BUDGETS

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


class Judged:
    """A pod that may be evicted for any of higher priority, and a controller that has it evicted."""

    def __init__(self, world: Any, *, spared: bool = False) -> None:
        self._world = world
        self.told: list[str] = []
        self._evictions = Evictions(world.rules.fault, lambda _uid, name: self.told.append(name))
        world.observe = self._evictions.observe
        for name in ("gpu", "kept"):
            world.class_(name, preemption="LowerPriority")
        wishes = {"spec": {"priority": 1}, "labels": SPARED if spared else {}}
        self.uid = world.create(PODS, pod("victim", "one", wishes=wishes))["metadata"]["uid"]

    def nomination(self, name: str, kind: str = "one", **spec: Any) -> Any:
        pod = self._world.pod(name, kind, **spec)
        reference = SimpleNamespace(uid=pod["metadata"]["uid"])
        return SimpleNamespace(pod=reference, terminating=frozenset({self.uid}))

    def evict(self, *nominations: Any, who: str = "controller-1") -> None:
        self._evictions.asked(self.uid, nominations)
        with acting_as(who):
            self._world.server.post(PODS, "victim", "eviction", {"deleteOptions": {}}, NAMESPACE)

    def runs(self, *, ready: bool) -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        self._world.status(PODS, "victim", {"phase": "Running", "conditions": conditions}, "kubelet")

    def allow(self, disruptions: int) -> None:
        """A disruption budget does so."""
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": SPARED}}
        body = typed(BUDGETS, {"metadata": {"name": "spares", "namespace": NAMESPACE}, "spec": spec})
        self._world.create(BUDGETS, body)
        counts = {"currentHealthy": 1, "desiredHealthy": 1, "observedGeneration": 1}
        self._world.status(BUDGETS, "spares", {"disruptionsAllowed": disruptions, **counts}, "disruption")

    def delete(self, nomination: Any) -> None:
        """Without the eviction API."""
        self._evictions.asked(self.uid, [nomination])
        with acting_as("controller-1"):
            self._world.server.delete(PODS, "victim", NAMESPACE)


def test_a_pod_may_be_evicted_for_one_of_higher_priority(play: Play) -> None:
    async def story(world: Any) -> None:
        judged = Judged(world)
        judged.evict(judged.nomination("p", priority=2))

        assert (world.faults, judged.told) == ([], ["victim"])

    play(story)


@pytest.mark.parametrize(
    ("kind", "spec", "why"),
    [
        ("one", {"priority": 1}, "for p of priority 1, its own is 1"),
        ("one", {"priority": 2, "preemptionPolicy": "Never"}, "for p, which preempts nobody"),
        ("kept-too", {"priority": 2}, "for p: class kept does not say so"),
    ],
)
def test_not_for_one_that_may_not_have_others_evicted(
    play: Play, kind: str, spec: dict[str, Any], why: str
) -> None:
    async def story(world: Any) -> None:
        judged = Judged(world)
        world.change_class("kept", preemption="Never")
        await world.wait(LATELY + 1)
        judged.evict(judged.nomination("p", kind, **spec))

        assert world.faults == [f"wrongly evicted: pod victim: {why}"]

    play(story)


def test_nor_for_nobody(play: Play) -> None:
    async def story(world: Any) -> None:
        Judged(world).evict()

        assert world.faults == ["wrongly evicted: pod victim: for nobody"]

    play(story)


def test_one_of_several_for_which_it_is_right_is_enough(play: Play) -> None:
    async def story(world: Any) -> None:
        judged = Judged(world)
        judged.evict(judged.nomination("p", priority=0), judged.nomination("q", priority=2))

        assert not world.faults

    play(story)


def test_users_evict_whom_they_like(play: Play) -> None:
    async def story(world: Any) -> None:
        judged = Judged(world)
        judged.evict(who="user")

        assert (world.faults, judged.told) == ([], [])

    play(story)


def test_a_request_that_arrives_late_is_judged_and_begins_no_plan(play: Play) -> None:
    async def story(world: Any) -> None:
        judged = Judged(world)
        judged.evict(judged.nomination("p", priority=1), who="controller-1 (late)")

        assert world.faults == ["wrongly evicted: pod victim: for p of priority 1, its own is 1"]
        assert not judged.told

    play(story)


def test_a_pod_with_a_budget_is_evicted_by_the_eviction_api(play: Play) -> None:
    async def story(world: Any) -> None:
        judged = Judged(world, spared=True)
        judged.runs(ready=True)
        judged.allow(1)
        judged.evict(judged.nomination("p", priority=2))

        assert (world.faults, judged.told) == ([], ["victim"])

    play(story)


@pytest.mark.parametrize(("ready", "faults"), [(True, ["its disruption budget was not asked"]), (False, [])])
def test_in_another_way_only_if_the_budget_does_not_count_it(play: Play, ready: bool, faults: list[str]) -> None:
    async def story(world: Any) -> None:
        judged = Judged(world, spared=True)
        judged.runs(ready=ready)
        judged.allow(1)
        judged.delete(judged.nomination("p", priority=2))

        assert world.faults == [f"wrongly evicted: pod victim: {why}" for why in faults]

    play(story)
