"""A crowd of pods that come and go at random on real nodes: what they ask for, and how their lives end.

Everything is drawn from a seed before a pod is made, so a seed is the same crowd each time; how its lives fall
together in time is up to the machine. What is done to the nodes meanwhile is `disturbances`' affair.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from random import Random
from typing import Final

from tests.cluster.manifests import IMAGE, Manifest, claim, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.watching import collections

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.kube.client import NotFound

PATIENCE: Final = 15.0
"""Seconds after which a pod that does not run is deleted: a kubelet whose plugin died while it prepared a claim
tries again after 60 to 90 s only."""

_PROGRESS: Final = 2

_ENDS: Final = 180.0
"""Seconds that a deleted pod may take."""

_HERE: Final = '{ [ -z "$SCRATCH" ] || touch $SCRATCH/here; }'
_WAITS: Final = f"{_HERE} && sleep 3600"
_FINISHES: Final = f"{_HERE} && sleep 0.5"
SHARED: Final = "shared"


class Kind(Enum):
    """What a pod asks for."""

    DEVICE = "a device"
    TWO_DEVICES = "two devices by two claims"
    INIT = "a device that an init container has first"
    FOLDER = "a folder"
    SEVERAL_DRIVERS = "a device and a folder"
    SHARED = "the device of a claim that others use at the same time"


class Fate(Enum):
    """How a pod's life ends. All are deleted, one way or the other."""

    DELETED = "deleted while it runs"
    EARLY = "deleted at any moment, soon"
    FORCED = "deleted by force while it runs"
    FINISHED = "by itself"


_TEMPLATES: Final[Mapping[Kind, Mapping[str, str]]] = {
    Kind.DEVICE: {"gpu": "one"},
    Kind.TWO_DEVICES: {"left": "one", "right": "one"},
    Kind.INIT: {"gpu": "one"},
    Kind.FOLDER: {"disk": "folder"},
    Kind.SEVERAL_DRIVERS: {"gpu": "one", "disk": "folder"},
    Kind.SHARED: {},
}


def needs(scratch: str) -> tuple[Manifest, ...]:
    """The classes, templates and the claim that the crowd uses; `scratch` is the driver of folders."""
    return (
        resource_class("gpu"),
        resource_class("gpu-for-many", shareable=True),
        resource_class("scratch", scratch),
        template("one"),
        template("folder", "scratch", sizeMiB=10),
        claim(SHARED, "gpu-for-many"),
    )


class Crowd:
    """`count` pods, so many `at_once`."""

    def __init__(self, team: Namespace, seed: int, count: int, at_once: int) -> None:
        random = Random(seed)
        self.tally: Counter[str] = Counter()
        self.kinds: dict[str, Kind] = {}
        """By the pods' UIDs."""
        self._team = team
        self._plans = [
            (f"p{number}", random.choice(list(Kind)), random.choice(list(Fate)), random.uniform(0.0, 2.0))
            for number in range(count)
        ]
        self._room = asyncio.Semaphore(at_once)
        self._pods: Mapping[str, Pod] = {}
        self._news = asyncio.Condition()

    async def live(self) -> None:
        """All lives, from beginning to end. Raises TimeoutError if a deleted pod does not go."""
        async with self._watched(), asyncio.TaskGroup() as group:
            for plan in self._plans:
                await self._room.acquire()
                group.create_task(self._one(*plan)).add_done_callback(lambda _: self._room.release())

    @property
    def ran(self) -> int:
        """How many pods have run so far."""
        return self.tally["Running"] + self.tally["Succeeded"]

    async def progress(self) -> None:
        """Return when some more pods have run."""
        wanted = self.ran + _PROGRESS
        async with self._news:
            await self._news.wait_for(lambda: self.ran >= wanted)

    async def _one(self, name: str, kind: Kind, fate: Fate, pause: float) -> None:
        made = await self._team.client.create(PODS, _manifest(name, kind, fate), self._team.name)
        self.kinds[made.metadata.uid] = kind
        if fate is not Fate.EARLY:
            await self._ran(name, "Succeeded" if fate is Fate.FINISHED else "Running")
        await asyncio.sleep(pause)
        grace = 0 if fate is Fate.FORCED else None
        try:
            await self._team.client.delete(PODS, name, self._team.name, grace_period_seconds=grace)
        except NotFound:
            return
        await self._until(lambda: name not in self._pods, _ENDS)

    async def _ran(self, name: str, phase: str) -> None:
        try:
            await self._until(lambda: name in self._pods and self._pods[name].status.phase == phase, PATIENCE)
            self.tally[phase] += 1
        except TimeoutError:
            self.tally["given up"] += 1

    async def _until(self, holds: Callable[[], bool], limit: float) -> None:
        async with asyncio.timeout(limit), self._news:
            await self._news.wait_for(holds)

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        async for pods in collections(self._team.client, PODS, self._team.name):
            async with self._news:
                self._pods = {name: found for (_, name), found in pods.items()}
                self._news.notify_all()


def _manifest(name: str, kind: Kind, fate: Fate) -> Manifest:
    claims = {"gpu": SHARED} if kind is Kind.SHARED else None
    script = _FINISHES if fate is Fate.FINISHED else _WAITS
    made = pod(name, templates=_TEMPLATES[kind], claims=claims, script=script)
    if kind is Kind.INIT:
        (main,) = made["spec"]["containers"]
        first = {**main, "name": "first", "image": IMAGE, "command": ["sh", "-c", "env | grep PARLEY_DEVICE_"]}
        made["spec"]["initContainers"] = [first]
    return made
