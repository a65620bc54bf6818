"""Random mixes of pods, priorities and claims, against an oracle that counts devices and CPUs.

When all is quiet no pod waits for what pods of lower priority hold that it may have evicted, and nobody was
evicted for a pod that never ran.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.conftest import SECOND_SCHEDULER, played

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.kube.informer import Informer
from parley.scheduler.attempts import EVICTIONS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

MIXES = 200
SCHEDULERS = {
    "native": ("default-scheduler",),
    "both": ("default-scheduler", SECOND_SCHEDULER),
}
CPUS = 8
"""Of a node."""

BLOCKS = 8
"""Parts of the mixes, each a test of its own."""


class Mix:
    """One world: nodes with devices, and pods that ask for one or two of them, by a class that lets others take
    them or one that does not, and come to one of the schedulers. `crowded`: they ask for CPUs too, and some for
    nothing else."""

    def __init__(self, world: World, seed: int, schedulers: Sequence[str], *, crowded: bool) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._schedulers = schedulers
        self._crowded = crowded
        self.devices = {f"n{i}": self._random.randint(1, 3) for i in range(self._random.randint(1, 3))}
        self.asked: dict[str, tuple[int, bool]] = {}
        """Of each pod: how many devices, and whether they may be taken from it."""
        self.cpus: dict[str, int] = {}
        self.priority: dict[str, int] = {}
        self.ran: dict[str, tuple[int, str, int]] = {}
        """When each pod was bound, in numbers that rise, where, and its priority."""
        self.left: dict[str, int] = {}
        """When each pod that is gone began to go."""
        self._leaving: dict[str, int] = {}
        self._times = count()
        self._informer = Informer(world.client, PODS, on_change=self._changed)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name and new.metadata.name not in self.ran:
            self.ran[new.metadata.name] = (next(self._times), new.spec.node_name, new.spec.priority or 0)
        if new is not None and new.metadata.deletion_timestamp:
            self._leaving.setdefault(new.metadata.name, next(self._times))
        if old is not None and new is None:
            self.left[old.metadata.name] = self._leaving.get(old.metadata.name, next(self._times))

    async def play(self) -> None:
        world, watching = self._world, asyncio.create_task(self._informer.run())
        for node, amount in self.devices.items():
            await world.add_node(node, amount)
        for class_, preemption in (("gpu", "LowerPriority"), ("kept", "Never")):
            await world.add_class(class_, preemption=preemption)
            for amount in (1, 2):
                await world.add_template(f"{class_}-{amount}", class_, count=amount)
        world.start_parley()
        for number in range(self._random.randint(3, 9)):
            await self._add(f"pod-{number}")
            if self._random.random() < 0.2:
                world.kubelets.stop(self._random.choice(list(self.devices)))
            if self._random.random() < 0.5:
                await world.settle(3)
        for node in self.devices:
            world.kubelets.start(node)
        await world.settle(8 * EVICTIONS.first)
        watching.cancel()

    async def _add(self, name: str) -> None:
        amount, takes = self._random.randint(1, 2), self._random.random() < 0.85
        self.asked[name], self.priority[name], self.cpus[name] = (amount, takes), self._random.randint(0, 3), 0
        spec: dict[str, Any] = {"preemptionPolicy": "Never"} if self._random.random() < 0.2 else {}
        spec["schedulerName"] = self._random.choice(self._schedulers)
        templates = [f"{'gpu' if takes else 'kept'}-{amount}"]
        if self._crowded:
            self.cpus[name] = self._random.choice((0, 2, 4, 6))
            requests = {"cpu": str(self.cpus[name])}
            spec["containers"] = [{"name": "main", "image": "none", "resources": {"requests": requests}}]
            if self._random.random() < 0.4:
                templates, self.asked[name] = [], (0, True)
        await self._world.add_pod(name, *templates, priority=self.priority[name], **spec)

    async def faults(self) -> list[str]:
        """What the oracle objects to."""
        pods = (await self._world.client.list(PODS)).items
        found = [f"{pod.metadata.name} waits in vain" for pod in pods if self._could_run(pod, pods)]
        for name, when in self.left.items():
            notes = [note for reason, note in await self._world.events_on(name) if reason == "Preempted"]
            if not notes and self._crowded:
                continue  # the scheduler evicted it
            (note,) = notes
            preemptor, on = note.split()[3].removeprefix("default/"), note.split()[6].removesuffix(":")
            later = [priority for then, node, priority in self.ran.values() if node == on and then > when]
            if preemptor not in self.ran and max(later, default=-1) <= self.priority[preemptor]:
                found.append(f"{name} was evicted for {preemptor}, which never ran, nor a higher one instead")
            if not self.asked[name][1]:
                found.append(f"{name} was evicted, though its class does not say so")
        return found

    def _could_run(self, waiting: Pod, pods: Any) -> bool:
        name = waiting.metadata.name
        if waiting.spec.node_name:
            return False
        wanted, takes = self.asked[name]
        takes = takes and waiting.spec.preemption_policy != "Never"
        preempts = waiting.spec.preemption_policy != "Never"
        free, cpus = Counter(self.devices), Counter(dict.fromkeys(self.devices, CPUS))
        for pod in pods:
            amount, taken = self.asked[pod.metadata.name]
            lower = (pod.spec.priority or 0) < (waiting.spec.priority or 0)
            if pod.spec.node_name and not (takes and taken and lower):
                free[pod.spec.node_name] -= amount
            if pod.spec.node_name and not (preempts and lower):
                cpus[pod.spec.node_name] -= self.cpus[pod.metadata.name]
        return any(free[node] >= wanted and cpus[node] >= self.cpus[name] for node in self.devices)


def mixed(seed: int, schedulers: Sequence[str], *, crowded: bool = False) -> None:
    """Plays one mix."""

    async def scenario(world: World) -> None:
        mix = Mix(world, seed, schedulers, crowded=crowded)
        await mix.play()
        assert await mix.faults() == [], f"mix {seed}"

    played(scenario)


@pytest.mark.parametrize("schedulers", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_pod_waits_for_what_it_could_take_and_nobody_is_evicted_in_vain(
    block: int, schedulers: Sequence[str]
) -> None:
    for seed in range(block * MIXES // BLOCKS, (block + 1) * MIXES // BLOCKS):
        mixed(seed, schedulers)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nor_where_it_needs_cpus_too_that_its_scheduler_would_evict_others_for(block: int) -> None:
    for seed in range(block * MIXES // BLOCKS, (block + 1) * MIXES // BLOCKS):
        mixed(seed, SCHEDULERS["native"], crowded=True)
