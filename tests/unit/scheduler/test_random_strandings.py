"""Random lives of claims whose nodes are cordoned, out of service, deleted and back, with kills of the controller.

Kept data is never given up while its node may come back, nor while a pod uses it, nor before its time.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play
from tests.unit.scheduler.test_stranded import come_back, condition, cordon, delete, uncordon, untaint
from tests.unit.scheduler.test_stranded_ways import AFTER, lead, out_of_service

from parley.api.builtin import Node, Pod
from parley.api.models import ResourceClaim
from parley.api.resources import CLAIMS, NODES, PODS
from parley.control.claims.stranding import Stranding
from parley.control.release.releases import out_of_service as is_lost
from parley.kube.client import NotFound
from parley.kube.informer import Informer
from parley.sdk import Stranded

KEEP = 1_000_000
NAMES = ("a", "b", "c")
SLACK = 2.0
"""Seconds: times in the API are whole ones."""

WAYS = {"Wait": Stranded(), "Fail": Stranded("Fail", AFTER), "Recreate": Stranded("Recreate", AFTER)}


class Rules:
    """Looks at every state that the API ever shows, and remembers what must never be."""

    def __init__(self, world: World, way: str) -> None:
        self.faults: list[str] = []
        self._way = way
        self._lost: dict[str, float] = {}
        """Since when no node of that name can have anything that will be of use again."""
        self._closed: dict[str, float] = {}
        """Since when a node takes no pods."""
        self._back: dict[str, float] = {}
        """When nodes were there again, which a controller may have to see."""
        self._pods = Informer(world.client, PODS)
        self._claims = Informer(world.client, CLAIMS, on_change=self._claim_changed)
        nodes = Informer(world.client, NODES, on_change=self._node_changed)
        self.tasks = [asyncio.create_task(part.run()) for part in (nodes, self._pods, self._claims)]

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        name, now = (new or old).metadata.name, asyncio.get_running_loop().time()  # type: ignore[union-attr]
        for since, holds in (
            (self._lost, is_lost(new)),
            (self._closed, is_lost(new) or (new is not None and new.spec.unschedulable)),
        ):
            if holds:
                since.setdefault(name, now)
            elif since.pop(name, None) is not None:
                self._back[name] = now

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is None or new is None:
            return
        self.faults += [f"at {asyncio.get_running_loop().time():.0f}: {fault}" for fault in self._wrong(old, new)]

    def _wrong(self, old: ResourceClaim, new: ResourceClaim) -> Iterator[str]:
        now, node, used = asyncio.get_running_loop().time(), _where(old), old.status.kept_until is not None
        closed = now - self._closed.get(node, now) if node else 0.0
        if node and used and _where(new) != node:
            if self._way != "Recreate":
                yield f"kept data on node {node} was given up, and claims wait or fail"
            elif now - self._back.get(node, -SLACK) < SLACK:
                pass
            elif node not in self._lost:
                yield f"kept data on node {node} was given up, which is there"
            elif closed + SLACK < AFTER:
                yield f"kept data on node {node} was given up after {closed:.0f} s"
            elif users := [pod.metadata.name for pod in self._pods.values() if _uses(pod, node)]:
                yield f"kept data on node {node} was given up, and {users} use it"
        if not _failed(old) and _failed(new) and (self._way != "Fail" or closed + SLACK < AFTER):
            yield f"the claim on node {node} failed after {closed:.0f} s"
        if _failed(old) and not _failed(new):
            yield "the claim failed, and does not any more"

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()


def _where(claim: ResourceClaim) -> str:
    said = condition(claim, "Allocated")
    return said.message.rpartition(" ")[2] if said is not None and said.status == "True" else ""


def _failed(claim: ResourceClaim) -> bool:
    found = condition(claim, "Failed")
    return found is not None and found.status == "True"


def _uses(pod: Pod, node: str) -> bool:
    return pod.spec.node_name == node and pod.status.phase not in ("Succeeded", "Failed")


number = st.integers(0, 20)
actions = (
    "add",
    "end",
    "force",
    "kill",
    "cordon",
    "uncordon",
    "tear",
    "mend",
    "delete",
    "restore",
    "pass",
    "pass",
)
steps = st.tuples(st.sampled_from(actions), st.sampled_from(NAMES), number)
Step = tuple[str, str, int]


@dataclass
class Life:
    """Plays steps; a step that has nothing to work on does nothing."""

    world: World
    way: Stranded
    pods: list[str] = field(default_factory=list)

    async def play(self, step: Step) -> None:
        action, node, number = step
        try:
            await getattr(self, f"_{action}")(node, number)
        except NotFound:
            pass  # the node is not there

    async def _add(self, _: str, __: int) -> None:
        self.pods.append(f"p{len(self.pods)}")
        await self.world.add_pod(self.pods[-1], claims=["disk"])
        await asyncio.sleep(1)

    async def _end(self, _: str, number: int) -> None:
        name = self.pods[number % len(self.pods)] if self.pods else ""
        if name and (await self.world.pod(name)).status.phase == "Running":
            await self.world.finish_pod(name)
            await asyncio.sleep(1)

    async def _force(self, _: str, number: int) -> None:
        if self.pods:
            await self.world.force_delete(self.pods[number % len(self.pods)])

    async def _kill(self, _: str, number: int) -> None:
        """What came before has been seen. If it was not, a node that takes pods only while nobody leads has been
        closed all the time for the next leader: it goes by the claim's condition."""
        await asyncio.sleep(1)
        await self.world.crash()
        await asyncio.sleep(20 * number)
        lead(self.world, self.way)

    async def _cordon(self, node: str, _: int) -> None:
        await cordon(self.world, node)

    async def _uncordon(self, node: str, _: int) -> None:
        await uncordon(self.world, node)

    async def _tear(self, node: str, _: int) -> None:
        await out_of_service(self.world, node)

    async def _mend(self, node: str, _: int) -> None:
        await untaint(self.world, node)

    async def _delete(self, node: str, _: int) -> None:
        await delete(self.world, node)

    async def _restore(self, node: str, _: int) -> None:
        try:
            await self.world.client.get(NODES, node)
        except NotFound:
            await come_back(self.world, node)

    async def _pass(self, _: str, number: int) -> None:
        await asyncio.sleep(20 * number)


async def live(world: World, way: str, history: list[Step]) -> list[str]:
    """Plays the life. Returns what must never be; at the end every node is back."""
    for node in NAMES:
        await world.add_node(node, devices=1)
    await world.add_class(shareable=True, whenUnused={"keepSeconds": KEEP})
    lead(world, WAYS[way])
    await world.add_claim("disk")
    await world.settle(5)
    rules, life = Rules(world, way), Life(world, WAYS[way])
    for step in history:
        await life.play(step)
    for node in NAMES:
        for step in ((action, node, 0) for action in ("uncordon", "mend", "restore")):
            await life.play(step)
    await world.settle(AFTER)
    claim = await world.claim("disk")
    for pod in (await world.client.list(PODS, "default")).items:
        if not pod.spec.node_name and not _failed(claim):
            rules.faults.append(f"pod {pod.metadata.name} waits though all nodes are back")
    if condition(claim, "Stranded") is not None:
        rules.faults.append("the claim is stranded though all nodes are back")
    rules.stop()
    return rules.faults


LOST: list[Step] = [("add", "a", 0), ("end", "a", 0), *(("tear", node, 0) for node in NAMES), ("pass", "a", 20)]
CORDONED: list[Step] = [("add", "a", 0), ("end", "a", 0), *(("cordon", n, 0) for n in NAMES), ("pass", "a", 20)]
USED: list[Step] = [
    ("add", "a", 0),
    ("end", "a", 0),
    ("add", "a", 0),
    *(("tear", node, 0) for node in NAMES),
    ("pass", "a", 20),
]


@pytest.mark.parametrize("way", WAYS)
@example([("add", "a", 0), ("delete", "b", 0), ("pass", "a", 15), ("force", "a", 0)])
@example(LOST)
@example(CORDONED)
@example([("add", "a", 0), ("cordon", "a", 0), ("uncordon", "a", 0), ("kill", "a", 15), ("cordon", "a", 0)])
@example(USED)
@example([*CORDONED, ("kill", "a", 3), ("pass", "a", 20), ("add", "a", 0)])
@given(st.lists(steps, max_size=30))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_strandings(play: Play, way: str, history: list[Step]) -> None:
    async def scenario(world: World) -> None:
        assert await live(world, way, history) == []

    play(scenario)


def _lenient(self: Stranding, holding: Any) -> bool:
    return True


BUGS: dict[str, tuple[str, Any, str, list[Step], str]] = {
    "what is there is recreated": ("_may_go", _lenient, "Recreate", CORDONED, "which is there"),
    "at once": ("_seconds_left", lambda *_: 0.0, "Recreate", LOST, "given up after 0 s"),
    "failing at once": ("_seconds_left", lambda *_: 0.0, "Fail", CORDONED, "failed after 0 s"),
    "whatever the class says": (
        "_decision",
        lambda *_: Stranded("Recreate", AFTER),
        "Wait",
        LOST,
        "claims wait or fail",
    ),
}


@pytest.mark.parametrize(("name", "broken", "way", "history", "found"), BUGS.values(), ids=BUGS)
def test_a_planted_bug_breaks_its_rule(
    play: Play, name: str, broken: Any, way: str, history: list[Step], found: str
) -> None:
    async def scenario(world: World) -> None:
        with patch.object(Stranding, name, broken):
            assert any(found in fault for fault in await live(world, way, history))

    play(scenario)
