"""What the API server refuses to have made is told to those who wait for it, and tried less and less often."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient

from parley.api import reasons
from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIMS,
    CLASSES,
    POD_SCHEDULINGS,
    Resource,
)
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Call, Forbidden, Invalid

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

QUOTA = "exceeded quota: small"


class Quota:
    """Refuses to have objects of a kind made, as long as it is `full`."""

    def __init__(self, resource: Resource[Any]) -> None:
        self.resource = resource
        self.full = True
        self.refused = 0

    def __call__(self, call: Call) -> None:
        if self.full and call.resource == self.resource and call.verb in ("create", "patch"):
            self.refused += 1
            raise Forbidden(403, "Forbidden", QUOTA)


class Faults(Quota):
    """Refuses templates, with words that `told` makes of the number of the attempt."""

    def __init__(self, told: Callable[[int], str]) -> None:
        super().__init__(BUILTIN_TEMPLATES)
        self._told = told

    def __call__(self, call: Call) -> None:
        try:
            super().__call__(call)
        except Forbidden:
            raise Invalid(422, "Invalid", self._told(self.refused)) from None


def in_any_order(attempt: int) -> str:
    """As the API server does, which ranges over a map of labels."""
    faults = [f'spec.metadata.labels: Invalid value: "no label {number}"' for number in range(12)]
    random.Random(attempt).shuffle(faults)
    return f"is invalid: [{', '.join(faults)}]"


def other_words(attempt: int) -> str:
    return f"used: pods={attempt}"


async def begin(world: World, quota: Quota) -> None:
    await world.add_node("a", devices=2)
    await world.add_class()
    client = FaultClient(world.server.client(), before=quota)
    world.start_parley(client, drivers=[DeviceDriver(), TokensDriver()])


@pytest.mark.scheduling_paths("native", "extender")
def test_a_template_whose_mirror_is_refused(play: Any, scheduling_path: str) -> None:
    async def scenario(world: World) -> None:
        quota = Quota(BUILTIN_TEMPLATES)
        await begin(world, quota)
        await world.add_template()
        await world.add_pod("p", "one")
        await world.settle(quiet=1.0)

        words = (
            "the API server refused the resource.k8s.io ResourceClaimTemplate that stands for default/one: "
            f"{QUOTA}: change what it names; Parley tries again"
        )
        status = (await world.scheduling("p")).status
        assert (status.waiting_for, status.message) == (reasons.WRITE_REFUSED, words)
        assert await world.events_on("p") == [(reasons.WRITE_REFUSED, words)]
        assert await world.events_on("one") == [(reasons.WRITE_REFUSED, words)]

        await world.settle(quiet=600.0)
        assert quota.refused < 40
        quota.full = False
        await world.settle(quiet=400.0)
        assert await world.node_of("p") == "a"

    play(scenario)


@pytest.mark.parametrize(("told", "reports"), [(in_any_order, 1), (other_words, 40)])
def test_a_template_that_is_refused_in_other_words_each_time_is_tried_less_and_less(
    play: Any, told: Callable[[int], str], reports: int
) -> None:
    async def scenario(world: World) -> None:
        faults = Faults(told)
        await begin(world, faults)
        await world.add_template()
        await world.add_pod("p", "one")
        await asyncio.sleep(1)
        first = world.server.resource_version
        await asyncio.sleep(600)
        assert 5 < faults.refused < 40
        assert world.server.resource_version - first < 2 * reports

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_a_named_claim_whose_mirror_is_refused(play: Any, scheduling_path: str) -> None:
    async def scenario(world: World) -> None:
        quota = Quota(BUILTIN_CLAIMS)
        await begin(world, quota)
        await world.add_claim("c")
        await world.add_pod("p", claims=["c"])
        await world.settle(quiet=1.0)

        words = (
            "the API server refused the resource.k8s.io ResourceClaim that stands for default/c: "
            f"{QUOTA}: change what it names; Parley tries again"
        )
        (accepted,) = (c for c in (await world.claim("c")).status.conditions if c.type == reasons.ACCEPTED)
        assert (accepted.status, accepted.reason, accepted.message) == ("False", reasons.WRITE_REFUSED, words)
        status = (await world.scheduling("p")).status
        assert (status.waiting_for, status.message) == (reasons.WRITE_REFUSED, words)
        assert await world.events_on("p") == [(reasons.WRITE_REFUSED, words)]

        quota.full = False
        await world.settle(quiet=400.0)
        assert await world.node_of("p") == "a"

    play(scenario)


def test_a_stand_in_that_is_refused(play: Any) -> None:
    async def scenario(world: World) -> None:
        quota = Quota(CLAIMS)
        await begin(world, quota)
        await world.add_class("disks", driverName="disks.example.com")
        await world.add_template("disk", "disks")
        await world.add_pod("p", "disk")
        await world.settle(quiet=1.0)

        words = f"the API server refused a write: {QUOTA}"
        status = (await world.scheduling("p")).status
        assert (status.waiting_for, status.message) == (reasons.WRITE_REFUSED, words)
        assert await world.events_on("p") == [(reasons.WRITE_REFUSED, words)]

    play(scenario)


def test_a_podscheduling_that_is_refused_keeps_no_pod_from_running(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, Quota(POD_SCHEDULINGS))
        await world.add_template()
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)


def test_nobody_waits_behind_a_bound_pod_whose_allocation_is_refused(play: Any) -> None:
    """A new leader has to write what the pod holds once more, and cannot."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=3)
        await world.add_class()
        await world.add_class("late")
        await world.add_template("t", "late")
        await world.add_claim("c")
        world.start_parley(drivers=[DeviceDriver(), TokensDriver()])
        await world.add_pod("first", "t", claims=["c"])
        await world.settle()
        await world.crash()
        await world.stop_claim_controller()
        for mirror in await world.mirrors():
            cleared = {"status": {"allocation": None, "reservedFor": None}}
            await world.client.patch(
                BUILTIN_CLAIMS, mirror.metadata.name, cleared, "default", subresource="status"
            )
        await world.client.delete(CLASSES, "late")

        quota = Quota(BUILTIN_CLAIMS)
        refusing = FaultClient(
            world.server.client(), before=lambda call: quota(call) if call.name == "c" else None
        )
        world.start_parley(refusing, drivers=[DeviceDriver(), TokensDriver()])
        await world.settle()
        world.start_claim_controller()
        for name in ("second", "third"):
            await world.add_pod(name, "t")
        await world.settle()
        assert (await world.scheduling("second")).status.waiting_for == reasons.CLASS_NOT_FOUND

        await world.add_class("late")
        await world.settle(quiet=5.0)
        assert quota.refused
        assert (await world.scheduling("first")).status.waiting_for == reasons.ALLOCATION_FAILED
        assert [await world.node_of(name) for name in ("second", "third")] == ["a", "a"]

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_a_claim_that_cannot_be_cleared_keeps_no_other_one_of_its_pod(play: Any) -> None:
    async def scenario(world: World) -> None:
        quota = Quota(BUILTIN_CLAIMS)
        quota.full = False
        await world.add_node("a", devices=2)
        await world.add_class()
        for name in ("c", "d"):
            await world.add_claim(name)
        refusing = FaultClient(
            world.server.client(), before=lambda call: quota(call) if call.name == "c" else None
        )
        world.start_parley(refusing, drivers=[DeviceDriver()])
        await world.add_pod("first", claims=["c", "d"])
        await world.settle()
        assert await world.node_of("first") == "a"

        quota.full = True
        await world.delete_pod("first")
        await world.add_pod("second", claims=["d"])
        await world.settle(quiet=5.0)
        assert quota.refused
        assert await world.node_of("second") == "a"
        assert (await world.claim("c")).status.allocation is not None

        quota.full = False
        await world.settle(quiet=100.0)
        assert (await world.claim("c")).status.allocation is None

    play(scenario)
