"""From whom the soak's rule "given away" wants devices to be kept that pods were evicted for."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.kinds.nodes import slice_
from tests.soak.rules.holds import Hold
from tests.soak.rules.kept_devices import KeptDevices
from tests.soak.rules.mirrors import Device, Json

from parley.api.resources import RESOURCE_SLICES

Play = Callable[[Any], None]
VICTIM, PREEMPTOR, OTHER = "p1-one", "p2-double", "p3-one"
HAD: Device = ("b", "gpu-0")
FREE: Device = ("b", "gpu-1")
GIVEN_AWAY = "given away: [('b', 'gpu-1')] for pod {}, kept for p2-double"


class Preempting:
    """A pod that has another one evicted from a node with two devices, as it wants both."""

    def __init__(self, world: Any) -> None:
        world.node("b")
        world.create(RESOURCE_SLICES, slice_("b", 1))
        self.victim = world.pod(VICTIM, "one")
        self.preemptor = world.pod(PREEMPTOR, "double", priority=5)
        self.other = world.pod(OTHER, "one", schedulerName=SECOND_SCHEDULER)
        uid = self.victim["metadata"]["uid"]
        about = SimpleNamespace(uid=self.preemptor["metadata"]["uid"], name=PREEMPTOR)
        plan = SimpleNamespace(
            pod=about, priority=5, node="b", requests={}, terminating=frozenset({uid}), claims={}
        )
        taken = [(HAD, Hold((uid, "claim"), shared=False))]
        memory: Any = SimpleNamespace(
            nominations=[plan],
            controller=SimpleNamespace(ledger=SimpleNamespace(of_pod=lambda _: [])),
            is_complete=lambda *_: True,
            is_unwritten=lambda _: False,
            released_by=lambda plan: plan.terminating,
            taken=lambda: taken,
            assumed=dict,
        )
        self._kept = KeptDevices(world.server, world.rules, lambda: memory)
        self._kept.plan_made(memory, plan, taken)  # type: ignore[arg-type]

    def allocated(self, pod: Json, *devices: Device) -> None:
        self._kept.allocated(pod, frozenset(devices))


def test_the_preemptor_gets_what_is_kept(play: Play) -> None:
    async def story(world: Any) -> None:
        preempting = Preempting(world)
        preempting.allocated(preempting.preemptor, HAD, FREE)

        assert not world.faults

    play(story)


def test_a_pod_of_the_second_scheduler_does_not_from_the_moment_of_the_plan(play: Play) -> None:
    async def story(world: Any) -> None:
        preempting = Preempting(world)
        preempting.allocated(preempting.other, FREE)

        assert world.faults == [GIVEN_AWAY.format(OTHER)]

    play(story)


def test_a_victim_may_have_again_what_it_had(play: Play) -> None:
    async def story(world: Any) -> None:
        preempting = Preempting(world)
        preempting.allocated(preempting.victim, HAD)

        assert not world.faults

    play(story)


def test_but_nothing_else(play: Play) -> None:
    async def story(world: Any) -> None:
        preempting = Preempting(world)
        preempting.allocated(preempting.victim, FREE)

        assert world.faults == [GIVEN_AWAY.format(VICTIM)]

    play(story)
