"""Whom the soak's rule "out of turn" finds passed over: nobody by a pod that got what its scheduler chose of an
offer."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.cluster.observed import Step
from tests.soak.kinds.nodes import slice_
from tests.soak.rules.judge import Judge
from tests.soak.rules.mirrors import Json
from tests.soak.rules.serving_order import FORMED, ServingOrder

from parley.api.resources import PODS, RESOURCE_SLICES

Play = Callable[[Any], None]
LOW, HIGH = "p1-one", "p2-one"
PASSED_OVER = ["out of turn: pod p1-one of priority 0 was served, and pod p2-one of priority 5 waits"]


class Waiting:
    """Two pods, and one device; the controller could serve either."""

    def __init__(self, world: Any, *, kind: str = "one", priority: int = 0, policy: str = "", **both: Any) -> None:
        """`kind` and `policy` are those of the pod of higher priority, `priority` that of the other one."""
        self._world = world
        rules = world.rules
        self.low = world.pod(LOW, "one", priority=priority, **both)
        preempts = {"preemptionPolicy": policy} if policy else {}
        self.high = world.pod(HIGH, kind, priority=5, **preempts, **both)
        world.node("a")
        world.create(RESOURCE_SLICES, slice_("a", 1))
        self.servable = frozenset(pod["metadata"]["uid"] for pod in (self.low, self.high))
        self.attempt: Any = SimpleNamespace(exact=False, excluded=())
        """Of each pod."""
        memory: Any = SimpleNamespace(servable=lambda _: self.servable)
        self.order = ServingOrder(lambda: memory)

        def observe(step: Step) -> None:
            rules.observe(step)
            self.order.observe(step)

        world.observe = observe
        self.order.rest()

    def end(self, name: str) -> None:
        self._world.status(PODS, name, {"phase": "Failed"}, "user")

    def device_gone(self) -> None:
        self._world.server.delete(RESOURCE_SLICES, "a-devices", None)

    def faults(self) -> list[str]:
        pods: Any = SimpleNamespace(existing_attempt=lambda _: self.attempt)
        judge = Judge(self._world.server, self._world.rules)
        return list(self.order.faults(judge, pods, SECOND_SCHEDULER))


def allocated(world: Any, low: Json) -> None:
    world.allocate(f"{LOW}-gpu-0", "a", low)


def offered(world: Any, low: Json) -> None:
    world.offer(f"{LOW}-gpu-0", ["a"])
    world.reserve(f"{LOW}-gpu-0", low)
    world.fulfil(f"{LOW}-gpu-0", "a")


@pytest.mark.parametrize(("served", "faults"), [(allocated, PASSED_OVER), (offered, [])])
def test_a_pod_of_higher_priority_waits_for_what_one_of_lower_priority_got(
    play: Play, served: Any, faults: list[str]
) -> None:
    async def story(world: Any) -> None:
        waiting = Waiting(world)
        await world.wait(1)
        served(world, waiting.low)
        world.bind(waiting.low, "a")

        assert waiting.faults() == faults

    play(story)


def refused_before(waiting: Waiting) -> None:
    waiting.attempt.exact = True


def failed_for_good(waiting: Waiting) -> None:
    waiting.attempt.excluded = ("a",)


def unseen(waiting: Waiting) -> None:
    waiting.servable = frozenset()


def restarted(waiting: Waiting) -> None:
    waiting.order.memory_lost()


def ended(waiting: Waiting) -> None:
    waiting.end(HIGH)


def device_gone(waiting: Waiting) -> None:
    waiting.device_gone()


@pytest.mark.parametrize("excuse", [refused_before, failed_for_good, unseen, restarted, ended, device_gone])
def test_nobody_is_passed_over_who_could_not_be_served(play: Play, excuse: Callable[[Waiting], None]) -> None:
    async def story(world: Any) -> None:
        waiting = Waiting(world)
        await world.wait(1)
        excuse(waiting)
        allocated(world, waiting.low)
        world.bind(waiting.low, "a")

        assert waiting.faults() == []

    play(story)


@pytest.mark.parametrize(
    "pods",
    [{"schedulerName": SECOND_SCHEDULER}, {"priority": 5}, {"kind": "share"}],
    ids=["of the second scheduler", "equal", "of another kind"],
)
def test_only_pods_that_ask_parley_for_the_same_have_an_order(play: Play, pods: dict[str, Any]) -> None:
    async def story(world: Any) -> None:
        waiting = Waiting(world, **pods)
        await world.wait(1)
        allocated(world, waiting.low)
        world.bind(waiting.low, "a")

        assert waiting.faults() == []

    play(story)


def test_lines_are_as_before_some_time_after_a_restart(play: Play) -> None:
    async def story(world: Any) -> None:
        waiting = Waiting(world)
        restarted(waiting)
        await world.wait(FORMED + 1)
        allocated(world, waiting.low)
        world.bind(waiting.low, "a")

        assert waiting.faults() == PASSED_OVER

    play(story)


def test_who_was_served_before_the_rest_does_not_count(play: Play) -> None:
    async def story(world: Any) -> None:
        waiting = Waiting(world)
        await world.wait(1)
        allocated(world, waiting.low)
        world.bind(waiting.low, "a")
        waiting.order.rest()

        assert waiting.faults() == []

    play(story)


def test_whom_the_controller_could_serve_when_it_chose_counts(play: Play) -> None:
    """Its record comes later."""

    async def story(world: Any) -> None:
        waiting = Waiting(world)
        await world.wait(1)
        servable, waiting.servable = waiting.servable, frozenset()
        waiting.order.allocating(waiting.low["metadata"]["uid"])
        waiting.servable = servable
        allocated(world, waiting.low)
        world.bind(waiting.low, "a")

        assert waiting.faults() == []

    play(story)


@pytest.mark.parametrize(
    ("policy", "when", "faults"),
    [("Never", "after", []), ("Never", "before", PASSED_OVER), ("PreemptLowerPriority", "after", PASSED_OVER)],
)
def test_a_pod_that_preempts_nobody_waits_for_the_room_that_evictions_make(
    play: Play, policy: str, when: str, faults: list[str]
) -> None:
    async def story(world: Any) -> None:
        waiting = Waiting(world, policy=policy)
        victim = world.pod("victim", "plain", priority=-1)
        world.bind(victim, "a")
        await world.wait(1)
        if when == "before":
            evicted(world, victim)
            await world.wait(1)
        allocated(world, waiting.low)
        if when == "after":
            evicted(world, victim)
        world.bind(waiting.low, "a")

        assert waiting.faults() == faults

    play(story)


def evicted(world: Any, pod: Json) -> None:
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    world.status(PODS, pod["metadata"]["name"], {"conditions": conditions}, "scheduler")
