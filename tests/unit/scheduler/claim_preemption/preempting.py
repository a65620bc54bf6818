"""The setup of tests of claim preemption: nodes, pods that hold devices, disruption budgets, slow evictions."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.unit.scheduler.conftest import World

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.kube.client import Call, Client
from parley.kube.informer import Informer
from parley.kube.memory.evictions import BUDGETS
from parley.sdk import Driver

RIGHT_LACKING = 'pods "low" is forbidden: User "parley" cannot create resource "pods/eviction" in API group ""'

WATCHING: set[asyncio.Task[None]] = set()


async def begin(
    world: World,
    preemption: str = "LowerPriority",
    client: Client | None = None,
    drivers: Sequence[Driver[Any, Any]] | None = None,
    **devices: int,
) -> list[str]:
    """Add nodes with that many devices, a class and templates, and start Parley.

    Returns a list to which the names of pods are added when they are deleted.
    """
    for name, count in devices.items():
        await world.add_node(name, count)
    await world.add_class(**({"preemption": preemption} if preemption else {}))
    await world.add_template("one")
    await world.add_template("two", count=2)
    world.start_parley(client, drivers)
    evicted: list[str] = []

    def changed(old: Pod | None, new: Pod | None) -> None:
        for pod in (
            old if new is None else None,
            new if new is not None and new.metadata.deletion_timestamp else None,
        ):
            if pod is not None and pod.metadata.name not in evicted:
                evicted.append(pod.metadata.name)

    WATCHING.add(asyncio.create_task(Informer(world.client, PODS, on_change=changed).run()))
    await world.settle(5)
    return evicted


async def hold(world: World, **priorities: int) -> None:
    """Pods of these priorities get a device each, one after the other."""
    for name, priority in priorities.items():
        await world.add_pod(name, "one", priority=priority)
        await world.settle(5)
        assert await world.node_of(name)


async def budget(world: World, allowed: int, **labels: str) -> None:
    """A disruption budget for pods with these labels, which allows so many disruptions."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    await world.create(BUDGETS, {"metadata": {"name": "spares"}, "spec": spec})
    counts = {"currentHealthy": 1, "desiredHealthy": 2 - allowed}
    status = {"disruptionsAllowed": allowed, "observedGeneration": 1, **counts}
    await world.client.patch(BUDGETS, "spares", {"status": status}, "default", subresource="status")


class SlowEvictions(Client):
    """Every eviction takes `seconds`."""

    seconds = 2.0

    async def request(self, call: Call) -> bytes:
        if call.subresource == "eviction":
            await asyncio.sleep(self.seconds)
        return await super().request(call)


class SlowEvents(Client):
    """Events are written late."""

    async def request(self, call: Call) -> bytes:
        if call.resource.plural == "events":
            await asyncio.sleep(5)
        return await super().request(call)
