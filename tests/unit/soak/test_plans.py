"""Which plans the soak's rules find wrong when the first pod is evicted for them, and what they expect of them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.cluster.observed import Step
from tests.soak.cluster.processes import acting_as
from tests.soak.kinds.names import NAMESPACE, typed
from tests.soak.kinds.nodes import slice_
from tests.soak.rules.holds import Hold
from tests.soak.rules.mirrors import Json
from tests.soak.rules.plans import Plans

from parley.api.resources import CLAIMS, NODES, PODS, RESOURCE_SLICES
from parley.kube.memory.managed_fields import UPDATE, Manager

Play = Callable[[Any], None]
VICTIM, OTHER = "p1-one", "p2-one"
IN_VAIN = "evicted in vain: {} on node b: it could not run there without them"
NEEDLESSLY = "evicted needlessly: {} on node b: it could run there with {}"


class Planned:
    """Two pods of lower priority run on a node with two devices, each with one. A plan is made for another pod."""

    def __init__(self, world: Any, preemptor: str, *victims: str, **spec: Any) -> None:
        self.world, self._rules = world, world.rules
        self.memory = self._memory()
        self.plans = Plans(world.server, world.rules, lambda: self.memory, SECOND_SCHEDULER)
        world.observe = self._observe
        world.class_("gpu", preemption="LowerPriority")
        world.node("b")
        world.create(RESOURCE_SLICES, slice_("b", 1))
        self.pods = {name: self._running(name, number) for number, name in enumerate((VICTIM, OTHER))}
        self.preemptor = world.pod(preemptor, preemptor.partition("-")[2], priority=5, **spec)
        meta = self.preemptor["metadata"]
        self.plan: Any = SimpleNamespace(
            pod=SimpleNamespace(uid=meta["uid"], name=meta["name"], namespace=NAMESPACE),
            priority=5,
            node="b",
            requests={},
            terminating=frozenset(map(self.uid, victims)),
            claims={},
        )
        self.memory.nominations.append(self.plan)

    def uid(self, name: str) -> str:
        uid: str = self.pods[name]["metadata"]["uid"]
        return uid

    def _running(self, name: str, number: int) -> Json:
        pod: Json = self.world.pod(name, "one")
        self.world.allocate(f"{name}-gpu-0", "b", pod, f"gpu-{number}")
        self.world.bind(pod, "b")
        self.world.status(PODS, name, {"phase": "Running"}, "kubelet")
        return pod

    def _memory(self) -> Any:
        def taken() -> list[Any]:
            return [
                (("b", f"gpu-{number}"), Hold((self.uid(name), "claim"), shared=False))
                for number, name in enumerate(self.pods)
            ]

        return SimpleNamespace(
            nominations=[],
            controller=SimpleNamespace(ledger=SimpleNamespace(of_pod=lambda _: [])),
            allocating={},
            allocating_on=lambda _: [],
            is_complete=lambda *_: True,
            is_half_allocated=lambda _: False,
            is_unwritten=lambda _: False,
            leaves_anyway=lambda _: False,
            released_by=lambda plan: plan.terminating,
            beside=lambda _: [],
            taken=taken,
            assumed=dict,
        )

    def _observe(self, step: Step) -> None:
        self._rules.observe(step)
        self.plans.observe(step)

    def ask(self, name: str) -> None:
        """The controller requests the eviction."""
        self.plans.asked(self.memory, self.uid(name))

    def evict(self, name: str) -> None:
        """It does, and the pod is gone."""
        self.ask(name)
        with acting_as("controller-1"):
            self.world.server.post(PODS, name, "eviction", {"deleteOptions": {}}, NAMESPACE)
        self.plans.evicted(self.uid(name), name)

    @property
    def in_vain(self) -> list[str]:
        return list(self.plans.in_vain())


@pytest.mark.parametrize(
    ("preemptor", "victims", "faults"),
    [
        ("p3-one", [VICTIM], []),
        ("p3-double", [VICTIM, OTHER], []),
        ("p3-double", [VICTIM], [IN_VAIN.format("p3-double")]),
        ("p3-large", [OTHER], []),
        ("p3-large", [VICTIM], [IN_VAIN.format("p3-large")]),
        ("p3-one", [VICTIM, OTHER], [NEEDLESSLY.format("p3-one", name) for name in (VICTIM, OTHER)]),
        ("p3-large", [VICTIM, OTHER], [NEEDLESSLY.format("p3-large", VICTIM)]),
    ],
)
def test_all_victims_of_a_plan_are_needed_and_they_are_enough(
    play: Play, preemptor: str, victims: list[str], faults: list[str]
) -> None:
    async def story(world: Any) -> None:
        Planned(world, preemptor, *victims).ask(victims[0])

        assert sorted(world.faults) == sorted(faults)

    play(story)


def test_a_plan_is_judged_once(play: Play) -> None:
    async def story(world: Any) -> None:
        planned = Planned(world, "p3-one", VICTIM, OTHER)
        planned.ask(VICTIM)
        planned.ask(OTHER)

        assert len(world.faults) == 2

    play(story)


def test_a_node_that_a_class_does_not_admit_is_no_node_to_evict_pods_on(play: Play) -> None:
    async def story(world: Any) -> None:
        planned = Planned(world, "p3-one", VICTIM)
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
        world.change_class("gpu", suitableNodes={"nodeSelectorTerms": terms})
        planned.ask(VICTIM)

        assert world.faults == [IN_VAIN.format("p3-one")]

    play(story)


def test_a_plan_is_not_judged_by_what_the_controller_has_not_seen(play: Play) -> None:
    async def story(world: Any) -> None:
        planned = Planned(world, "p3-double", VICTIM)
        planned.memory.is_complete = lambda *_: False
        planned.ask(VICTIM)

        assert not world.faults

    play(story)


def test_in_the_end_the_preemptor_does_not_wait_any_more(play: Play) -> None:
    async def story(world: Any) -> None:
        planned = Planned(world, "p3-one", VICTIM)
        planned.evict(VICTIM)
        assert planned.in_vain == [f"evicted in vain: {VICTIM} for p3-one on node b: it waits still"]
        world.bind(planned.preemptor, "b")

        assert not planned.in_vain

    play(story)


def _cordoned(planned: Planned) -> None:
    spec = {"unschedulable": True}
    planned.world.server.patch(NODES, "b", {"spec": spec}, None, Manager("user", UPDATE, ""))


def _class_changed(planned: Planned) -> None:
    planned.world.change_class("gpu", preemption="Never")


def _create(planned: Planned, claim: str) -> None:
    body = {"metadata": {"name": claim, "namespace": NAMESPACE}, "spec": {"resourceClassName": "gpu"}}
    planned.world.create(CLAIMS, typed(CLAIMS, body), "tenant")


def _name_taken(planned: Planned) -> None:
    _create(planned, "p3-one-gpu-0")


def _another_claim(planned: Planned) -> None:
    _create(planned, "another")


def _restarted(planned: Planned) -> None:
    planned.plans.memory_lost()


def _higher_nominated(planned: Planned) -> None:
    another = SimpleNamespace(pod=SimpleNamespace(uid="another"), node="b", priority=6, terminating=frozenset())
    planned.memory.nominations.append(another)
    planned.world.node("c")  # rules look at each change


def _lower_bound(planned: Planned) -> None:
    planned.world.bind(planned.world.pod("p4-one", "one", priority=4), "b")


def _higher_bound(planned: Planned) -> None:
    planned.world.bind(planned.world.pod("p4-one", "one", priority=6), "b")


@pytest.mark.parametrize(
    ("happens", "is_excuse"),
    [
        (_cordoned, True),
        (_class_changed, True),
        (_name_taken, True),
        (_another_claim, False),
        (_restarted, True),
        (_higher_nominated, True),
        (_higher_bound, True),
        (_lower_bound, False),
    ],
)
def test_only_what_nobody_could_foresee_is_an_excuse(
    play: Play, happens: Callable[[Planned], None], is_excuse: bool
) -> None:
    async def story(world: Any) -> None:
        planned = Planned(world, "p3-one", VICTIM)
        planned.evict(VICTIM)
        happens(planned)

        assert bool(planned.in_vain) is not is_excuse

    play(story)
