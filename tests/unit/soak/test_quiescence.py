"""What the soak finds at rest: who waits in vain, which conditions disagree, what was left over; and whom it
excuses."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from tests.soak.actions.priorities import Preemption
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.cluster.world import Broken
from tests.soak.kinds.claims import claim
from tests.soak.kinds.names import DRIVER, NAMESPACE
from tests.soak.kinds.nodes import slice_
from tests.soak.plan import Plan
from tests.soak.rules import quiescence
from tests.soak.rules.data import Place
from tests.soak.rules.limits import ClassLimits
from tests.unit.soak.conftest import CONTROLLER

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, POD_SCHEDULINGS, PODS, RESOURCE_SLICES
from parley.api.selectors import node_selector
from parley.control.objects.mirror import claim_mirror
from parley.simulate.anti_affinity import Pod, PodSpec
from parley.simulate.cluster import loop_clock

Play = Callable[[Any], None]
P = "p-gpu-0"
NO_LEADER = "no controller: none leads"


class AtRest:
    """A world in which nothing happens any more and no controller leads; `plan` says what it is about."""

    def __init__(self, ruled: Any, **plan: Any) -> None:
        self._ruled = ruled
        limits = ClassLimits(ruled.rules.fault, ruled.rules.lives)

        def observe(step: Any) -> None:
            ruled.rules.observe(step)
            if self._world.plan.class_limits:
                limits.observe(step)

        ruled.observe = observe
        self._world: Any = SimpleNamespace(
            server=ruled.server,
            invariants=ruled.rules,
            plan=Plan(**plan),
            leader=None,
            limits=limits,
            plans=SimpleNamespace(in_vain=lambda: ()),
            clock=loop_clock(),
            loop=asyncio.get_running_loop(),
        )

    def faults(self) -> Sequence[str]:
        return list(quiescence._faults(self._world))

    def left(self) -> Sequence[str]:
        return [what for what in quiescence._left(self._world) if what != NO_LEADER]


def one_device(ruled: Any) -> None:
    ruled.node("a")
    ruled.create(RESOURCE_SLICES, slice_("a", 1))


def runs(ruled: Any, name: str = "p") -> None:
    ruled.status(PODS, name, {"phase": "Running"}, "kubelet")


def test_a_pod_waits_though_a_node_has_what_it_asks_for(play: Play) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        one_device(ruled)
        ruled.pod("p", "one")

        assert at_rest.faults() == ["waits in vain: pod p could run on node a"]

    play(story)


def has_ended(ruled: Any) -> None:
    ruled.pod("p", "one")
    ruled.status(PODS, "p", {"phase": "Failed"}, "kubelet")


def is_gated(ruled: Any) -> None:
    ruled.pod("p", "one", schedulingGates=[{"name": "later"}])


def finds_the_device_taken(ruled: Any) -> None:
    ruled.pod("p", "one")
    other = ruled.pod("q", "one")
    ruled.allocate("q-gpu-0", "a", other)
    ruled.bind(other, "a")
    ruled.rules.prepared(other["metadata"]["uid"])
    runs(ruled, "q")


def names_a_claim_that_does_not_exist(ruled: Any) -> None:
    ruled.pod("p", "disk")


def has_a_template_that_does_not_exist(ruled: Any) -> None:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "nobody-s"}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    spec = {"containers": [{"name": "main", "image": "x"}], "resourceClaims": entries}
    ruled.create(PODS, {**body, "spec": spec})


@pytest.mark.parametrize(
    "pod",
    [
        has_ended,
        is_gated,
        finds_the_device_taken,
        names_a_claim_that_does_not_exist,
        has_a_template_that_does_not_exist,
    ],
)
def test_a_pod_that_waits_with_good_reason_is_no_fault(play: Play, pod: Callable[[Any], None]) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        one_device(ruled)
        pod(ruled)

        assert at_rest.faults() == []

    play(story)


LIMITED = {"limits": [{"units": 0}]}


@pytest.mark.parametrize(("kind", "is_excused"), [(LIMITED, True), ({"limits": [{"units": 1}]}, False)])
def test_a_pod_may_wait_for_a_limit_if_nothing_is_left_of_it(
    play: Play, kind: Mapping[str, Any], is_excused: bool
) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled, class_limits=True)
        ruled.class_("gpu", **kind)
        one_device(ruled)
        ruled.pod("p", "one")

        assert at_rest.faults() == ([] if is_excused else ["waits in vain: pod p could run on node a"])

    play(story)


def test_a_pod_is_bound_where_it_could_start_and_does_not(play: Play) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        one_device(ruled)
        ruled.bind(ruled.pod("p", "one"), "a", "user")

        assert at_rest.faults() == ["waits in vain: pod p is bound to a, not running"]

    play(story)


def test_what_a_running_pod_uses_is_not_reserved_for_it(play: Play) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        pod = ruled.pod("p", "one")
        ruled.start(pod, P, "a")
        runs(ruled)
        assert at_rest.faults() == []
        ruled.reserve(P)

        assert at_rest.faults() == [f"not reserved: claim {P} for pod p"]

    play(story)


ALLOCATION = {
    "handles": [{"driverName": DRIVER, "data": {}, "devices": [{"pool": "a", "device": "gpu-0"}]}],
    "availableOnNodes": node_selector(["a"]),
}


def conditions(generation: int = 1, **holds: bool) -> list[dict[str, Any]]:
    at = "2026-01-01T00:00:00Z"
    return [
        {
            "type": type_,
            "status": str(true),
            "reason": type_,
            "message": "",
            "lastTransitionTime": at,
            "observedGeneration": generation,
        }
        for type_, true in holds.items()
    ]


def body(
    status: Mapping[str, Any] | None = None, shown: Sequence[Any] = (), name: str = "disk", **meta: Any
) -> dict[str, Any]:
    about = {"name": name, "uid": "u", "generation": 1, **meta}
    return {"metadata": about, "spec": claim("disk")["spec"], "status": {**(status or {}), "conditions": shown}}


READY = conditions(Accepted=True, Allocated=True, Ready=True)
NOT_READY = conditions(Accepted=True, Allocated=True, Ready=False)
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("claim_body", "stranded"),
    [
        (body({"allocation": ALLOCATION}, READY), False),
        (body({}, conditions(Accepted=True, Allocated=False, Ready=False)), False),
        (body({"allocation": ALLOCATION}, NOT_READY, **GOING), False),
        (body({"allocation": ALLOCATION, "deallocationRequested": True}, NOT_READY), False),
        (body({"allocation": ALLOCATION}, [*NOT_READY, *conditions(Releasing=True)]), False),
        (body({"allocation": ALLOCATION}, [*NOT_READY, *conditions(Stranded=True)]), True),
        (body({"allocation": ALLOCATION}, [*NOT_READY, *conditions(Failed=True)]), False),
        (body({"allocation": ALLOCATION}, name="a-tenant-s"), False),
    ],
)
def test_conditions_that_say_what_the_claim_shows_agree(claim_body: dict[str, Any], stranded: bool) -> None:
    assert list(quiescence._disagreeing(claim_body, stranded=stranded)) == []


@pytest.mark.parametrize(
    ("claim_body", "stranded", "told"),
    [
        (body({"allocation": ALLOCATION}), False, 2),
        (body({}, READY), False, 2),
        (body({"allocation": ALLOCATION}, READY, **GOING), False, 1),
        (body({"allocation": ALLOCATION}, READY), True, 2),
        (body({"allocation": ALLOCATION}, [*READY, *conditions(Stranded=True)]), False, 1),
        (body({"allocation": ALLOCATION}, [*READY, *conditions(Failed=True)]), False, 1),
        (body({"allocation": ALLOCATION}, READY, generation=2), False, 2),
    ],
    ids=["none", "not allocated", "going", "stranded", "not stranded any more", "failed", "outdated"],
)
def test_others_do_not(claim_body: dict[str, Any], stranded: bool, told: int) -> None:
    assert len(list(quiescence._disagreeing(claim_body, stranded=stranded))) == told


def test_an_immediate_claim_is_not_allocated_though_a_node_has_what_it_asks_for(play: Play) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled, class_limits=True)
        ruled.class_("standing")
        one_device(ruled)
        made = ruled.create(CLAIMS, claim("standing"))
        mirror = claim_mirror(CLAIMS.decode(orjson.dumps(made)), shareable=False)
        ruled.create(BUILTIN_CLAIMS, mirror, CONTROLLER)
        waiting = conditions(Accepted=True, Allocated=False, Ready=False)
        ruled.status(CLAIMS, "standing", {"conditions": waiting}, CONTROLLER)
        assert at_rest.faults() == ["waits in vain: immediate claim standing"]

        ruled.change_class("standing", **LIMITED)
        assert at_rest.faults() == []

    play(story)


def test_a_claim_that_nobody_uses_is_allocated_after_its_deadline(play: Play) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        ruled.node("a")
        ruled.create(CLAIMS, claim("cache"))
        status = {"driverName": DRIVER, "allocation": ALLOCATION, "keptUntil": "2026-01-01T00:01:00Z"}
        ruled.status(CLAIMS, "cache", {**status, "conditions": READY}, CONTROLLER)
        await ruled.wait(59)
        assert at_rest.faults() == []
        await ruled.wait(5)

        assert at_rest.faults() == ["kept too long: claim cache, until 2026-01-01T00:01:00Z, and it is 00:01:04"]

    play(story)


def test_nothing_is_left_of_pods_that_are_gone(play: Play) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        one_device(ruled)
        assert at_rest.left() == []
        pod = ruled.pod("p", "one")
        ruled.allocate(P, "a", pod)
        ruled.create(POD_SCHEDULINGS, scheduling("p", pod["metadata"]["uid"]))
        ruled.create(CLAIMS, claim("disk"))
        ruled.status(CLAIMS, "disk", {"driverName": DRIVER, "allocation": ALLOCATION}, CONTROLLER)
        ruled.rules.data.left(Place("claim-uid", "a", "folder"), "uid-of-p", (("a", "gpu-0"),))
        found = at_rest.left()

        assert [what.partition("=")[0] for what in found] == [
            "pod p (None)",
            "PodScheduling p",
            f"built-in claim {P}, generated",
            f"built-in claim {P}: status.allocation ",
            f"built-in claim {P}: status.reservedFor ",
            "Parley claim disk: status.allocation ",
            "Parley claim disk: status.driverName ",
            "data of claim claim-uid on node a: folder",
        ]

    play(story)


def scheduling(name: str, uid: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    about = {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]}
    kind = {"apiVersion": POD_SCHEDULINGS.api_version, "kind": POD_SCHEDULINGS.kind}
    return {**kind, "metadata": about, "spec": {}}


def test_an_immediate_claim_keeps_its_allocation_and_nothing_else(play: Play) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        ruled.create(CLAIMS, claim("standing"))
        ruled.status(CLAIMS, "standing", {"driverName": DRIVER, "allocation": ALLOCATION}, CONTROLLER)
        assert at_rest.left() == []
        kept = {"keptUntil": "2026-01-01T00:01:00Z", "deallocationRequested": True}
        ruled.status(CLAIMS, "standing", kept, CONTROLLER)

        assert at_rest.left() == [
            "Parley claim standing: status.deallocationRequested = True",
            "Parley claim standing: status.keptUntil = 2026-01-01T00:01:00Z",
        ]

    play(story)


def test_a_claim_waits_for_a_finalizer_for_ever(play: Play) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        made = claim("disk")
        made["metadata"]["finalizers"] = ["parley.dev/in-use"]
        ruled.create(CLAIMS, made)
        ruled.server.delete(CLAIMS, "disk", NAMESPACE)

        assert at_rest.left() == ["Parley claim disk, being deleted, with finalizers ['parley.dev/in-use']"]

    play(story)


def test_a_world_that_never_ends_to_write_is_a_fault(play: Play) -> None:
    async def story(_: Any) -> None:
        async def settle(*_: float) -> bool:
            return False

        world: Any = SimpleNamespace(settle=settle)
        with pytest.raises(Broken, match="never quiet: no pod is left, and it still writes after 2000 s"):
            await quiescence.nothing_is_left(world)

    play(story)


@pytest.mark.parametrize(("writes", "is_quiet"), [(12, True), (13, False)])
def test_a_pod_that_is_refused_everywhere_may_cost_a_few_writes(play: Play, writes: int, is_quiet: bool) -> None:
    async def story(ruled: Any) -> None:
        at_rest = AtRest(ruled)
        ruled.pod("p", "one")
        world, checked = at_rest._world, []

        async def settle(*_: float) -> bool:
            return False

        async def let_pass(_: float) -> None:
            ruled.server.controllers_steps += writes

        async def check() -> None:
            checked.append(True)

        world.settle, world.let_pass, world.check = settle, let_pass, check
        if is_quiet:
            await quiescence.feasible_pods_run(world)
        else:
            with pytest.raises(Broken, match="never quiet: 13 writes in 320 s for 1 pods"):
                await quiescence.feasible_pods_run(world)
        assert bool(checked) is is_quiet

    play(story)


@pytest.mark.parametrize(
    ("scheduler", "evicted"), [("default-scheduler", "bound holder"), (SECOND_SCHEDULER, "holder")]
)
def test_only_who_holds_claims_is_evicted_for_a_pod_of_the_second_scheduler(scheduler: str, evicted: str) -> None:
    pods = SimpleNamespace(existing_attempt=lambda _: None)
    controller = SimpleNamespace(_parts=SimpleNamespace(reconciler=SimpleNamespace(_pods=pods)))
    evictions = SimpleNamespace(may_preempt=lambda _: True, evictable=lambda: frozenset({"bound", "holder"}))
    world: Any = SimpleNamespace(
        plan=Plan(preemption=Preemption.ALLOWED),
        evictions=evictions,
        leader=SimpleNamespace(controller=controller),
    )
    judge: Any = SimpleNamespace(
        holders=lambda: frozenset({"holder"}), could_preempt=lambda _, evictable: " ".join(sorted(evictable))
    )
    pod = Pod(spec=PodSpec(scheduler_name=scheduler))
    assert quiescence._could_preempt(world, judge, pod) == evicted
