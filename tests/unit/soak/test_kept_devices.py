"""From whom the soak's rule "given away" wants devices to be kept that pods were evicted for."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.kinds.nodes import slice_
from tests.soak.rules.holds import Hold
from tests.soak.rules.kept_devices import KeptDevices
from tests.soak.rules.mirrors import Device, Json

from parley.api.resources import RESOURCE_SLICES

Play = Callable[[Any], None]
VICTIM, PREEMPTOR, OTHER, EQUAL, LARGE = "p1-one", "p2-double", "p3-one", "p4-one", "p2-large"
HAD: Device = ("b", "gpu-0")
FREE: Device = ("b", "gpu-1")
GIVEN_AWAY = "given away: [('b', 'gpu-1')] for pod {}, kept for p2-double"


class Preempting:
    """A pod that has another one evicted from a node with two devices: it wants both, or the large one."""

    def __init__(self, world: Any, preemptor: str = PREEMPTOR) -> None:
        world.node("b")
        world.create(RESOURCE_SLICES, slice_("b", 1))
        self.victim = world.pod(VICTIM, "one")
        self.preemptor = world.pod(preemptor, preemptor.partition("-")[2], priority=5)
        self.other = world.pod(OTHER, "one", schedulerName=SECOND_SCHEDULER)
        self.equal = world.pod(EQUAL, "one", priority=5)
        self._taken = [(HAD, Hold((_uid(self.victim), "claim"), shared=False))]
        plan = self._plan(self.preemptor)
        memory: Any = SimpleNamespace(
            nominations=[plan, self._plan(self.equal)],
            controller=SimpleNamespace(ledger=SimpleNamespace(of_pod=lambda _: [])),
            is_complete=lambda *_: True,
            is_unwritten=lambda _: False,
            released_by=lambda plan: plan.terminating,
            taken=lambda: self._taken,
            assumed=dict,
        )
        self._kept = KeptDevices(world.server, world.rules, lambda: memory)
        self._kept.plan_made(memory, plan, self._taken)

    def _plan(self, pod: Json) -> Any:
        about = SimpleNamespace(uid=_uid(pod), name=pod["metadata"]["name"])
        terminating = frozenset({_uid(self.victim)})
        return SimpleNamespace(pod=about, priority=5, node="b", requests={}, terminating=terminating, claims={})

    def allocated(self, pod: Json, *devices: Device) -> frozenset[str]:
        """Returns for whom not enough is left."""
        self._taken += [(device, Hold((_uid(pod), "claim"), shared=False)) for device in devices]
        return self._kept.allocated(pod, frozenset(devices))


def _uid(pod: Json) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


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


@pytest.mark.parametrize(("devices", "is_outdone"), [((HAD,), False), ((FREE,), True)])
def test_an_equal_that_is_nominated_for_the_node_may_take_the_only_device_that_suits_the_preemptor(
    play: Play, devices: tuple[Device, ...], is_outdone: bool
) -> None:
    async def story(world: Any) -> None:
        preempting = Preempting(world, LARGE)
        outdone = preempting.allocated(preempting.equal, *devices)

        assert outdone == ({_uid(preempting.preemptor)} if is_outdone else frozenset())
        assert not world.faults

    play(story)
