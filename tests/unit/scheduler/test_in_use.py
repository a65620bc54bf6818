"""An exclusive named claim that is in use: its allocation says so to schedulers, which leave other pods alone
until it ends, and then try the next pod at once."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient, NumberedCall
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, restart

from parley.api.builtin import Pod
from parley.api.names import CONDITION_IN_USE
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.kube.client import ApiError, Client, Forbidden, Invalid
from parley.kube.informer import Informer

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

WORK_SECONDS = 37
"""So long a pod runs: by then a scheduler that fails over it again and again looks every 10 s."""
TRIES = 3
"""Seconds and attempts: a scheduler may try a pod in vain before it can know better, after which it waits 1 s."""


async def begin(world: World, client: Client | None = None, **class_: Any) -> Behaviour:
    behaviour = Behaviour(other=10)
    for node in ("n0", "n1"):
        await world.add_node(node)
    await add_shelf_class(world, **class_)
    await world.add_claim("common", "shelf")
    world.start_parley(client, drivers=[ShelfDriver(behaviour)])
    return behaviour


class Attempts:
    """What the scheduler did with pods: in how many attempts it failed, and when each began to run."""

    def __init__(self, world: World) -> None:
        self.failed: Counter[str] = Counter()
        self.began: dict[str, float] = {}
        self._seen: set[tuple[str, str]] = set()
        self.task = asyncio.create_task(Informer(world.client, PODS, on_change=self._pod).run())

    def _pod(self, _: Pod | None, pod: Pod | None) -> None:
        if pod is None:
            return
        name = pod.metadata.name
        if pod.status.phase == "Running":
            self.began.setdefault(name, asyncio.get_running_loop().time())
        for condition in pod.status.conditions:
            seen = (name, condition.last_transition_time or "")
            if condition.reason == "SchedulerError" and seen not in self._seen:
                self._seen.add(seen)
                self.failed[name] += 1


async def in_use_devices(world: World) -> bool:
    mirror = await world.mirror("common")
    assert mirror is not None
    conditions = [condition for device in mirror.status.devices for condition in device.conditions]
    return any(one.type == CONDITION_IN_USE and one.status == "True" for one in conditions)


@pytest.mark.parametrize("keeps", [{}, {"whenUnused": {"keepSeconds": 3600}}], ids=["", "kept"])
@pytest.mark.parametrize("restarts", [False, True], ids=["", "after-restarts"])
def test_the_next_pod_begins_at_once_when_the_claim_is_free(play: Any, keeps: Any, restarts: bool) -> None:
    async def scenario(world: World) -> None:
        behaviour = await begin(world, **keeps)
        attempts = Attempts(world)
        names = ["m", "z", "b", "y"]
        for name in names:
            await world.add_pod(name, claims=["common"])
            await asyncio.sleep(2)
        for name in names:
            await asyncio.sleep(WORK_SECONDS)
            assert name in attempts.began
            if restarts:
                await restart(world, [ShelfDriver(behaviour)], after=3)
            await world.finish_pod(name)
            ended = asyncio.get_running_loop().time()
            await asyncio.sleep(TRIES)
            begun = [other for other, at in attempts.began.items() if other != name and at >= ended]
            assert begun == names[names.index(name) + 1 :][:1]
        assert max(attempts.failed.values(), default=0) <= TRIES, attempts.failed
        attempts.task.cancel()

    play(scenario)


def test_it_is_said_only_of_a_claim_that_another_pod_waits_for(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("first", claims=["common"])
        await world.settle()
        assert (await world.pod("first")).status.phase == "Running"
        assert not await in_use_devices(world)
        await world.add_pod("second", claims=["common"])
        await world.settle()
        assert await in_use_devices(world)
        await world.delete_pod("first")
        await world.settle()
        assert (await world.pod("second")).status.phase == "Running"
        assert not await in_use_devices(world)

    play(scenario)


def test_it_is_not_said_before_the_pod_that_has_the_claim_is_bound(play: Any) -> None:
    """That pod's own scheduler would take it for in use, too."""

    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("first", claims=["common"], schedulerName="nobody")
        await world.settle()
        mirror = await world.mirror("common")
        assert mirror is not None
        assert [user.name for user in mirror.status.reserved_for] == ["first"]
        await world.add_pod("second", claims=["common"])
        await asyncio.sleep(WORK_SECONDS)
        assert not await in_use_devices(world)
        (holding,) = world.ledger
        target = {"apiVersion": "v1", "kind": "Node", "name": holding.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "first"}, "target": target}
        await world.client.create_subresource(PODS, "first", "binding", binding, "default")
        await world.settle()
        assert await in_use_devices(world)

    play(scenario)


def test_a_shared_claim_says_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world, shareable=True)
        for name in ("first", "second"):
            await world.add_pod(name, claims=["common"])
        await world.settle()
        mirror = await world.mirror("common")
        assert mirror is not None
        assert len(mirror.status.reserved_for) == 2
        assert mirror.status.devices == []
        (result,) = mirror.status.allocation.devices.results  # type: ignore[union-attr]
        assert result.binding_failure_conditions == []

    play(scenario)


NOT_ALLOWED = 'status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver"'
"""As the API server of Kubernetes 1.37 has it, which finds that out when it validates the claim."""


@pytest.mark.parametrize(
    "error",
    [Invalid(422, "Invalid", NOT_ALLOWED), Forbidden(403, "Forbidden", "a policy does not allow it")],
    ids=str,
)
def test_without_the_right_to_say_so_claims_are_allocated_as_before(play: Any, error: ApiError) -> None:
    """A role that does not name a driver of the operator's own in `resourceclaims/driver`."""
    asked: list[bool] = []

    def refuse(call: NumberedCall) -> None:
        status = (call.body or {}).get("status") or {} if call.resource == BUILTIN_CLAIMS and call.write else {}
        if status.get("allocation"):
            asked.append(bool(status.get("devices")))
        if status.get("devices"):
            raise error

    async def scenario(world: World) -> None:
        await begin(world, FaultClient(world.server.client(), before=refuse))
        for name in ("first", "second"):
            await world.add_pod(name, claims=["common"])
            await asyncio.sleep(60)
        await world.delete_pod("first")
        await world.settle()
        assert (await world.pod("second")).status.phase == "Running"
        assert asked == [True, False, False]

    play(scenario)


def test_a_scheduler_does_not_try_for_a_claim_that_is_being_deleted(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("has", claims=["common"])
        await world.settle()
        await world.client.delete(CLAIMS, "common", "default")
        await world.settle()
        await world.add_pod("late", claims=["common"])
        await asyncio.sleep(60)
        before = world.server.resource_version
        await asyncio.sleep(60)

        assert world.server.resource_version == before
        assert (await world.scheduling("late")).status.waiting_for == "ClaimBeingDeleted"
        assert (await world.pod("has")).status.phase == "Running"

    play(scenario)
