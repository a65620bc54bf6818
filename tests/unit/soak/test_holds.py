"""When the soak's rule "handed out twice" finds a device taken by two claims, and what it takes for one."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.cluster.observed import Step
from tests.soak.kinds.claims import claim
from tests.soak.kinds.names import DRIVER, NAMESPACE, STANDALONE_DRIVER
from tests.soak.kinds.nodes import slice_
from tests.soak.rules.data import Place
from tests.soak.rules.holds import DeviceHolds, Hold
from tests.soak.rules.mirrors import Device

from parley.api.resources import CLAIMS, NODES, PODS, RESOURCE_SLICES
from parley.api.selectors import node_selector
from parley.kube.memory.watch_cache import Change

Play = Callable[[Any], None]
P, Q = "p-gpu-0", "q-gpu-0"
TWICE = "handed out twice: a/gpu-0: "
WHOLE, SPLIT = ("a", "gpu-0"), ("d", "gpu-0")


def two_pods(world: Any) -> tuple[Any, Any]:
    """The first one runs with the device gpu-0 of its node."""
    first, second = world.pod("p", "one"), world.pod("q", "one")
    world.start(first, P, "a")
    return first, second


def test_a_device_that_a_claim_has_is_recorded_for_another_pod(play: Play) -> None:
    async def story(world: Any) -> None:
        _, second = two_pods(world)
        world.allocate(Q, "a", second)

        assert world.faults == [f"{TWICE}record of {P}; in use through {P}; record of {Q}"]

    play(story)


def test_another_device_is(play: Play) -> None:
    async def story(world: Any) -> None:
        _, second = two_pods(world)
        world.allocate(Q, "a", second, "gpu-1")

        assert not world.faults

    play(story)


def test_a_pod_that_was_started_uses_its_device_though_others_cleared_the_record(play: Play) -> None:
    async def story(world: Any) -> None:
        _, second = two_pods(world)
        world.clear(P, "meddler")
        world.allocate(Q, "a", second)

        assert world.faults == [f"{TWICE}in use through {P}; record of {Q}"]

    play(story)


def test_a_device_is_free_when_its_pod_has_ended(play: Play) -> None:
    async def story(world: Any) -> None:
        _, second = two_pods(world)
        world.status(PODS, "p", {"phase": "Succeeded"}, "kubelet")
        world.allocate(Q, "a", second)

        assert not world.faults

    play(story)


@pytest.mark.parametrize("free", ["no", "unprepared", "machine gone"])
def test_after_a_forced_deletion_it_is_when_the_node_has_it_prepared_no_more(play: Play, free: str) -> None:
    async def story(world: Any) -> None:
        first, second = two_pods(world)
        world.server.delete(PODS, "p", NAMESPACE, grace=0)
        if free == "unprepared":
            world.rules.unprepared(first["metadata"]["uid"])
        elif free == "machine gone":
            world.server.delete(NODES, "a", None)
        world.allocate(Q, "a", second)

        assert world.faults == ([f"{TWICE}in use through {P}; record of {Q}"] if free == "no" else [])

    play(story)


def record(world: Any, name: str, driver: str, device: str, **status: Any) -> None:
    """A Parley claim records the device, without users."""
    handle = {"driverName": driver, "data": {}, "devices": [{"pool": "a", "device": device}]}
    allocation = {"handles": [handle], "availableOnNodes": node_selector(["a"])}
    world.create(CLAIMS, claim(name))
    world.status(CLAIMS, name, {"driverName": driver, "allocation": allocation, **status}, "controller-1")


@pytest.mark.parametrize(("status", "is_held"), [({"keptUntil": "2026-01-01T01:00:00Z"}, True), ({}, False)])
def test_a_claim_that_is_kept_without_users_has_what_it_records(
    play: Play, status: dict[str, str], is_held: bool
) -> None:
    async def story(world: Any) -> None:
        record(world, "cache", DRIVER, "gpu-0", **status)
        world.allocate(P, "a", world.pod("p", "one"))

        assert world.faults == ([f"{TWICE}record of cache; record of {P}"] if is_held else [])

    play(story)


@pytest.mark.parametrize("is_requested", [False, True])
def test_a_standalone_driver_has_what_it_recorded_until_deallocation_is_requested(
    play: Play, is_requested: bool
) -> None:
    async def story(world: Any) -> None:
        record(world, "drive", STANDALONE_DRIVER, "far-0", deallocationRequested=is_requested or None)
        world.allocate(P, "a", world.pod("p", "far"), "far-0")

        text = f"handed out twice: a/far-0: record of drive; record of {P}"
        assert world.faults == ([] if is_requested else [text])

    play(story)


@pytest.mark.parametrize("is_removed", [False, True])
def test_data_of_a_named_claim_holds_its_devices_until_the_node_has_removed_it(
    play: Play, is_removed: bool
) -> None:
    async def story(world: Any) -> None:
        place = Place("claim-uid", "a", "folder")
        world.rules.data.left(place, "uid-of-p", (WHOLE,))
        world.rules.holds.take(WHOLE, ("data", " ".join(place)), Hold(("claim-uid", ""), shared=False))
        if is_removed:
            world.rules.data.machine_gone("a")
        world.allocate(P, "a", world.pod("p", "one"))

        assert world.faults == ([] if is_removed else [f"{TWICE}data left for {' '.join(place)}; record of {P}"])

    play(story)


class Shares:
    """Devices of node d, which can be split into four shares."""

    def __init__(self, world: Any) -> None:
        self.faults: list[str] = []
        self._holds = DeviceHolds(lambda _, text: self.faults.append(text))
        world.observe = self._observe
        world.create(RESOURCE_SLICES, slice_("d", 1))

    def _observe(self, step: Step) -> None:
        assert isinstance(step.change, Change)
        self._holds.slice_changed(step)

    def take(self, *claims: str, device: Device = SPLIT, shared: bool = True) -> None:
        for name in claims:
            self._holds.take(device, ("record", (NAMESPACE, name)), Hold((name, ""), shared))


def test_a_device_has_so_many_shares(play: Play) -> None:
    async def story(world: Any) -> None:
        shares = Shares(world)
        shares.take("a", "b", "c", "d")
        assert not shares.faults
        shares.take("e")

        listed = "; ".join(f"record of {name} (a share)" for name in "abcde")
        assert shares.faults == [f"d/gpu-0 has too few shares: {listed}"]

    play(story)


def test_a_share_and_the_whole_device_exclude_each_other(play: Play) -> None:
    async def story(world: Any) -> None:
        shares = Shares(world)
        shares.take("a")
        shares.take("b", shared=False)

        assert shares.faults == ["d/gpu-0: record of a (a share); record of b"]

    play(story)


def test_a_claim_may_have_a_device_for_many_reasons(play: Play) -> None:
    async def story(world: Any) -> None:
        shares = Shares(world)
        for source in ("record", "kept", "data"):
            shares._holds.take(SPLIT, (source, (NAMESPACE, "a")), Hold(("a", ""), shared=False))

        assert not shares.faults

    play(story)


def test_what_is_dropped_is_free(play: Play) -> None:
    async def story(world: Any) -> None:
        shares = Shares(world)
        shares.take("a", shared=False)
        shares._holds.drop(SPLIT, ("record", (NAMESPACE, "a")))
        shares._holds.take(SPLIT, ("pod-uid", (NAMESPACE, "b")), Hold(("b", ""), shared=False))
        shares._holds.drop_use(SPLIT, "pod-uid", ("b", ""))
        shares.take("c", shared=False)

        assert not shares.faults

    play(story)
