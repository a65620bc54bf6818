"""Random lives of pods, with kills of the controller and meddling in between, in virtual time.

At no moment is a device held twice; at the end everything that can run does, and when the pods are gone
nothing is left: no claim, no holding, no reservation.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from parley.api.models import ResourceClaim
from parley.api.resources import BUILTIN_CLAIMS, NODES, PODS
from parley.kube.client import ApiError

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
    from tests.unit.scheduler.watching import Watcher
else:
    World = Watcher = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

NODE_NAMES = ("a", "b", "c")
KINDS = {
    "one": (["one"], []),
    "pair": (["one", "one"], []),
    "double": (["double"], []),
    "offered": (["offered"], []),
    "disk": ([], ["disk"]),
    "both": (["one"], ["disk"]),
    "shared": ([], ["shared"]),
}

number = st.integers(0, 20)
steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(sorted(KINDS)), number),
    st.tuples(st.just("add"), st.sampled_from(sorted(KINDS)), number),
    st.tuples(st.just("delete"), st.just(""), number),
    st.tuples(st.just("finish"), st.just(""), number),
    st.tuples(st.just("kill"), st.just(""), number),
    st.tuples(st.just("cordon"), st.sampled_from(NODE_NAMES), number),
    st.tuples(st.just("clear"), st.just(""), number),
    st.tuples(st.just("remove"), st.just(""), number),
    st.tuples(st.just("pass"), st.just(""), number),
)
Step = tuple[str, str, int]


@dataclass
class Life:
    """Plays steps; a step that has nothing to work on does nothing."""

    world: World
    controller: asyncio.Task[None]
    pods: dict[str, str] = field(default_factory=dict)
    cordoned: set[str] = field(default_factory=set)

    async def play(self, step: Step) -> None:
        action, what, number = step
        await getattr(self, f"_{action}")(what, number)

    async def _add(self, kind: str, _: int) -> None:
        name = f"p{len(self.pods)}"
        self.pods[name] = kind
        templates, claims = KINDS[kind]
        await self.world.add_pod(name, *templates, claims=claims)

    def _some_pod(self, number: int) -> str | None:
        names = [name for name, kind in self.pods.items() if kind]
        return names[number % len(names)] if names else None

    async def _delete(self, _: str, number: int) -> None:
        if name := self._some_pod(number):
            self.pods[name] = ""
            await self.world.delete_pod(name)

    async def _finish(self, _: str, number: int) -> None:
        name = self._some_pod(number)
        if name and (await self.world.pod(name)).status.phase == "Running":
            await self.world.finish_pod(name)

    async def _kill(self, _: str, number: int) -> None:
        self.world.killed.add(self.controller)
        self.controller.cancel()
        await asyncio.wait([self.controller])
        await asyncio.sleep(number % 3)
        self.controller = self.world.start_parley()

    async def _cordon(self, node: str, _: int) -> None:
        self.cordoned ^= {node}
        await self.world.client.patch(NODES, node, {"spec": {"unschedulable": node in self.cordoned or None}})

    async def _some_mirror(self, number: int) -> str | None:
        names = sorted(mirror.metadata.name for mirror in await self.world.mirrors())
        return names[number % len(names)] if names else None

    async def _clear(self, _: str, number: int) -> None:
        if name := await self._some_mirror(number):
            body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
            try:
                await self.world.client.patch(BUILTIN_CLAIMS, name, body, "default", subresource="status")
            except ApiError:
                pass  # gone meanwhile

    async def _remove(self, _: str, number: int) -> None:
        if name := await self._some_mirror(number):
            try:
                await self.world.client.delete(BUILTIN_CLAIMS, name, "default")
            except ApiError:
                pass  # gone meanwhile

    async def _pass(self, _: str, number: int) -> None:
        await asyncio.sleep(number / 4)


async def begin(world: World) -> Life:
    await world.add_node("a", devices=1)
    await world.add_node("b", devices=2)
    await world.add_node("c", devices=1)
    await world.add_class()
    await world.add_class("exact", placement="Exact")
    await world.add_class("shareable", shareable=True)
    await world.add_template()
    await world.add_template("double", count=2)
    await world.add_template("offered", "exact")
    await world.add_claim("disk")
    await world.add_claim("shared", "shareable")
    return Life(world, world.start_parley())


async def finish(life: Life) -> None:
    world = life.world
    for node in NODE_NAMES:
        await world.client.patch(NODES, node, {"spec": {"unschedulable": None}})
    await world.settle(700)
    await everything_that_can_run_does(life)
    for pod in (await world.client.list(PODS, "default")).items:
        await world.delete_pod(pod.metadata.name)
    await world.settle(700)
    assert not [m.metadata.name for m in await world.mirrors() if m.metadata.name not in ("disk", "shared")]
    assert not await world.devices()
    for name in ("disk", "shared"):
        claim = await world.claim(name)
        assert (claim.status.allocation, claim.status.reserved_for) == (None, ())
    assert world.controller is not None
    assert len(world.controller.ledger) == 0


async def everything_that_can_run_does(life: Life) -> None:
    """Nobody who wants one device waits while there is a free one. What a mirror does not show, because it was
    cleared or deleted under a pod, the claim's own record does, or else the ledger."""
    shown = await life.world.devices()
    assert all(count == 1 for count in shown.values())
    held = set(shown) | {
        device for name in ("disk", "shared") for device in _recorded(await life.world.claim(name))
    }
    assert life.world.controller is not None
    held |= {
        (one.pool, one.device) for holding in life.world.controller.ledger for one in holding.allocation.devices
    }
    alive = {name: kind for name, kind in life.pods.items() if kind}
    waiting = {name for name in alive if not await life.world.node_of(name)}
    if len(held) < 4:
        assert not {name for name in waiting if alive[name] in ("one", "offered")}, f"free devices, held: {held}"
    if not held:
        assert not waiting


def _recorded(claim: ResourceClaim) -> Iterator[tuple[str, str]]:
    """The devices that the claim holds by its own record."""
    for handle in claim.status.allocation.handles if claim.status.allocation is not None else ():
        for device in (handle.data or {}).get("devices", ()):
            yield device["pool"], device["device"]


CLEARED_AND_DELETED = [
    ("add", "shared", 0),
    ("cordon", "b", 0),
    ("kill", "", 0),
    ("pass", "", 8),
    ("add", "both", 0),
    ("add", "offered", 11),
    ("delete", "", 16),
    ("clear", "", 1),
    ("remove", "", 1),
    ("add", "both", 0),
    ("add", "offered", 0),
]


@example(CLEARED_AND_DELETED)
@example([("add", "pair", 0), ("add", "disk", 0), ("kill", "", 0), ("add", "offered", 0), ("pass", "", 8)])
@example([("add", "both", 0), ("add", "disk", 0), ("remove", "", 14), ("remove", "", 12)])
@example([("add", "shared", 0), ("pass", "", 1), ("remove", "", 1), ("add", "shared", 0)])
@example([("add", "both", 0), ("add", "double", 0), ("pass", "", 1), ("remove", "", 2)])
@example([("add", "shared", 0), ("add", "shared", 0), ("pass", "", 4), ("delete", "", 0), ("kill", "", 1)])
@given(st.lists(steps, max_size=25))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_lives(
    play: Callable[[Any], None], watcher: Callable[[World], Watcher], history: list[Step]
) -> None:
    async def scenario(world: World) -> None:
        watching = watcher(world)
        life = await begin(world)
        for step in history:
            await life.play(step)
        await finish(life)
        watching.stop()
        assert watching.faults == []

    play(scenario)
