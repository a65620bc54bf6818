"""When the soak's rule about limits finds one exceeded, which claims it takes for allocated anew, and who
waits for a limit with good reason."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from tests.soak.cluster.observed import Step
from tests.soak.kinds.claims import claim
from tests.soak.kinds.names import DRIVER, NAMESPACE
from tests.soak.rules.kept_claims import LATELY
from tests.soak.rules.limits import ELSEWHERE, ClassLimits, Most, most

from parley.api.resources import CLAIMS, PODS
from parley.api.selectors import node_selector
from parley.simulate.anti_affinity import PODS as SCHEDULED_PODS

Play = Callable[[Any], None]
OVER = ["over the limit: class gpu: 1 more, of 3 units of 2 claims, with Most(claims=None, units=2)"]


class Limited:
    """Two named claims of a class of which the namespace may have two devices, and a pod that uses both."""

    def __init__(self, world: Any) -> None:
        self._world = world
        rules, limits = world.rules, ClassLimits(world.rules.fault, world.rules.lives)
        self.rule = limits

        def observe(step: Step) -> None:
            rules.observe(step)
            limits.observe(step)

        world.observe = observe
        world.class_("gpu", limits=[{"units": 2}])
        self._pod = world.pod("p", "two-named")
        for name in ("disk", "tape"):
            world.create(CLAIMS, claim(name))

    def allocate(self, name: str, *devices: str) -> None:
        found = [{"pool": "c", "device": device} for device in devices]
        allocation = {
            "handles": [{"driverName": "device.parley.dev", "data": {}, "devices": found}],
            "availableOnNodes": node_selector(["c"]),
        }
        meta = self._pod["metadata"]
        users = [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}]
        status = {"driverName": "device.parley.dev", "allocation": allocation, "reservedFor": users}
        self._world.status(CLAIMS, name, status, "controller-1")

    def clear(self, name: str, who: str) -> None:
        cleared = {"driverName": None, "allocation": None, "reservedFor": None}
        self._world.status(CLAIMS, name, cleared, who)


def test_a_claim_that_others_cleared_has_again_what_it_had(play: Play) -> None:
    async def story(world: Any) -> None:
        limited = Limited(world)
        limited.allocate("disk", "gpu-0")
        await world.wait(LATELY + 1)
        limited.clear("disk", "meddler")
        limited.allocate("tape", "gpu-1", "gpu-2")
        limited.allocate("disk", "gpu-0")

        assert not world.faults

    play(story)


def test_a_claim_that_was_released_is_allocated_anew(play: Play) -> None:
    async def story(world: Any) -> None:
        limited = Limited(world)
        limited.allocate("disk", "gpu-0")
        await world.wait(LATELY + 1)
        limited.clear("disk", "controller-1")
        limited.allocate("tape", "gpu-1", "gpu-2")
        limited.allocate("disk", "gpu-0")

        assert world.faults == OVER

    play(story)


def test_a_claim_of_a_generated_kind_counts_with_named_ones(play: Play) -> None:
    async def story(world: Any) -> None:
        limited = Limited(world)
        await world.wait(LATELY + 1)
        limited.allocate("tape", "gpu-1", "gpu-2")
        world.allocate("q-gpu-0", "c", world.pod("q", "one"))

        assert world.faults == OVER

    play(story)


def test_a_limit_that_the_class_has_had_lately_is_enough(play: Play) -> None:
    """A controller may not have seen the change yet."""

    async def story(world: Any) -> None:
        limited = Limited(world)
        await world.wait(LATELY + 1)
        world.change_class("gpu", limits=[{"units": 1}])
        limited.allocate("tape", "gpu-1", "gpu-2")
        assert not world.faults
        await world.wait(LATELY + 1)
        limited.allocate("disk", "gpu-0")

        assert world.faults == [OVER[0].replace("units=2", "units=1")]

    play(story)


@pytest.mark.parametrize("is_kept", [False, True])
def test_what_pods_that_have_ended_had_does_not_count_unless_it_is_kept(play: Play, is_kept: bool) -> None:
    async def story(world: Any) -> None:
        limited = Limited(world)
        await world.wait(LATELY + 1)
        limited.allocate("tape", "gpu-1", "gpu-2")
        if is_kept:
            world.status(CLAIMS, "tape", {"keptUntil": "2026-01-01T01:00:00Z"}, "controller-1")
        world.status(PODS, "p", {"phase": "Succeeded"}, "kubelet")
        world.allocate("q-gpu-0", "c", world.pod("q", "one"))

        assert world.faults == (OVER if is_kept else [])

    play(story)


@pytest.mark.parametrize(
    ("class_", "found"),
    [
        ({}, Most(None, None)),
        ({"limits": [{"claims": 2}]}, Most(2, None)),
        ({"limits": [{"namespaces": [ELSEWHERE], "units": 0}, {"units": 3}]}, Most(None, 3)),
        ({"limits": [{"claims": 0}, {"namespaces": [NAMESPACE], "units": 3}]}, Most(None, 3)),
        ({"limits": [{"namespaces": [ELSEWHERE], "units": 0}]}, Most(None, None)),
        ({"limits": [{"units": 3}], "parameters": {"pool": 1}}, Most(None, 1)),
    ],
)
def test_the_limit_that_names_the_namespace_counts_or_else_the_first_that_names_none(
    class_: dict[str, Any], found: Most
) -> None:
    assert most(class_) == found


def holding(class_: str, *devices: str, pods: tuple[str, ...] = (), claim: str = "", entry: str = "") -> Any:
    """An entry of the ledger."""
    allocation = SimpleNamespace(devices=devices, data={})
    about = {"uid": claim, "claim": claim, "entry": entry, "named": not entry, "driver": DRIVER}
    return SimpleNamespace(class_name=class_, pods=dict.fromkeys(pods), allocation=allocation, **about)


@pytest.mark.parametrize(
    ("held", "short_of"),
    [
        ([], ""),
        ([holding("gpu", "x")], "gpu"),
        ([holding("shareable", "x")], ""),
        ([holding("gpu", "x", pods=("p-uid",), entry="gpu-0")], ""),
        ([holding("gpu", "x", claim="disk")], ""),
        ([holding("gpu", "x", "y", claim="gone")], "gpu"),
    ],
    ids=["nothing", "another's", "of another class", "its own", "that it names", "of a claim that is gone"],
)
def test_a_pod_waits_for_a_limit_if_what_it_has_not_got_does_not_fit_beside_the_rest(
    play: Play, held: list[Any], short_of: str
) -> None:
    """It names the claim `disk` and has a claim of its own; the namespace may have two devices."""

    async def story(world: Any) -> None:
        limited = Limited(world)
        pod = SCHEDULED_PODS.decode(orjson.dumps(_pod("p-uid")))

        assert limited.rule.short_of(pod, held, {"disk"}) == short_of

    play(story)


def _pod(uid: str) -> dict[str, Any]:
    entries = [
        {"name": "gpu-0", "resourceClaimTemplateName": "one"},
        {"name": "disk", "resourceClaimName": "disk"},
    ]
    containers = [{"name": "main", "image": "x"}]
    spec = {"containers": containers, "resourceClaims": entries}
    return {"metadata": {"namespace": NAMESPACE, "name": "p", "uid": uid}, "spec": spec}


def test_a_claim_has_room_if_it_fits(play: Play) -> None:
    async def story(world: Any) -> None:
        limited = Limited(world)

        assert limited.rule.has_room_for("tape", [])
        assert not limited.rule.has_room_for("tape", [holding("gpu", "x")])
        assert limited.rule.has_room_for("common", [holding("gpu", "x")]), "its class was never seen"

    play(story)
