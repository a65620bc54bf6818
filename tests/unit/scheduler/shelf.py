"""A driver for tests: each node has so many places, and a test can say how it behaves."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from parley.api.builtin import NodeSelector
from parley.scheduler.controller import Controller
from parley.sdk import Allocation, Answer, ClaimRequest, Driver, Held, NodeLabels, Parameters, Request

ZONE = "topology.kubernetes.io/zone"

Trouble = Callable[[str], Awaitable[None]]
"""Called with the node at the end of each allocation, when the places are held; it may wait, or raise."""


class Wanted(Parameters):
    """Parameters of a claim."""

    count: Annotated[int, Field(ge=1)] = 1


class Shelves(Parameters):
    """Parameters of a class: its claims take so many times the places."""

    times: Annotated[int, Field(ge=1)] = 1


async def no_trouble(_: str) -> None:
    """Allocations succeed at once."""


@dataclass
class Behaviour:
    """What outlives a restart of the controller: how the driver behaves, and what it was asked.

    `places` are those of each node, `other` those of a node that is not named. `everywhere`: what is allocated
    on one node can be used on all.
    """

    places: Mapping[str, int] = field(default_factory=dict)
    other: int = 0
    alternatives: tuple[str, ...] | NodeSelector | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    trouble: Trouble = no_trouble
    everywhere: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    allocated: list[str] = field(default_factory=list)
    restored: list[Held] = field(default_factory=list)


class ShelfDriver(Driver[Wanted, Shelves]):
    """Counts places. Everything it is asked to do is in `behaviour`."""

    name: ClassVar[str] = "shelf.example.com"
    parameters = Wanted
    class_parameters = Shelves

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.held: dict[str, tuple[str, int]] = {}

    def free(self, node: str) -> int:
        """Places on the node that nobody holds."""
        used = sum(count for on, count in self.held.values() if on == node)
        return self.behaviour.places.get(node, self.behaviour.other) - used

    def units(self, claim: ClaimRequest[Wanted, Shelves]) -> int:
        """Places."""
        return claim.parameters.count * claim.class_parameters.times

    def _wanted(self, request: Request[Wanted, Shelves]) -> int:
        return sum(self.units(claim) for claim in request.claims)

    def viable(self, request: Request[Wanted, Shelves], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """Nodes with enough places for all claims of the request."""
        self.behaviour.calls["viable"] += 1
        self.behaviour.asked.append(tuple(nodes))
        viable = tuple(node for node in nodes if self.free(node) >= self._wanted(request))
        reasons = dict.fromkeys(set(nodes) - set(viable), "full")
        return {c.name: Answer(viable, self.behaviour.alternatives, reasons) for c in request.claims}

    def score(self, request: Request[Wanted, Shelves], nodes: Sequence[str]) -> Mapping[str, float]:
        """As the test says."""
        self.behaviour.calls["score"] += 1
        return {node: self.behaviour.scores[node] for node in nodes if node in self.behaviour.scores}

    async def allocate(self, request: Request[Wanted, Shelves], node: str) -> Mapping[str, Allocation]:
        """Hold the places, then meet the trouble that the test made."""
        self.behaviour.calls["allocate"] += 1
        self.behaviour.allocated.append(node)
        if self.free(node) < self._wanted(request):
            raise RuntimeError("full")
        for claim in request.claims:
            self._hold(claim.uid, node, self.units(claim))
        try:
            await self.behaviour.trouble(node)
        except Exception:
            for claim in request.claims:
                self._release(claim.uid)
            raise
        on = None if self.behaviour.everywhere else ()
        return {c.name: Allocation((), {"node": node, "count": self.units(c)}, on) for c in request.claims}

    async def deallocate(self, uid: str) -> None:
        """The places are free."""
        self.behaviour.calls["deallocate"] += 1
        self._release(uid)

    def restore(self, held: Held) -> None:
        """Hold what an earlier controller allocated."""
        self.behaviour.restored.append(held)
        assert held.data is not None
        self._hold(held.uid, held.data["node"], held.data["count"])

    def _hold(self, uid: str, node: str, count: int) -> None:
        self._release(uid)
        self.held[uid] = (node, count)

    def _release(self, uid: str) -> None:
        self.held.pop(uid, None)


def slow(seconds: float, then: Exception | None = None) -> Trouble:
    """An allocation that takes so long, and fails in the end if told so."""

    async def wait(_: str) -> None:
        await asyncio.sleep(seconds)
        if then is not None:
            raise then

    return wait


def failing(error: Exception, *nodes: str) -> Trouble:
    """Allocations fail on these nodes, or on all if none is named."""

    async def fail(node: str) -> None:
        if not nodes or node in nodes:
            raise error

    return fail


class ZoneDriver(ShelfDriver):
    """What is allocated on a node whose zone is given can be used in that zone; the node counts it."""

    def __init__(self, behaviour: Behaviour, zones: Mapping[str, str]) -> None:
        super().__init__(behaviour)
        self.zones = zones

    async def allocate(self, request: Request[Wanted, Shelves], node: str) -> Mapping[str, Allocation]:
        """As any shelf does, but for the whole zone."""
        found = await super().allocate(request, node)
        on = NodeLabels({ZONE: self.zones[node]}) if node in self.zones else ()
        return {name: replace(one, available_on=on) for name, one in found.items()}


async def add_shelf_class(world: Any, name: str = "shelf", **more: Any) -> None:
    """A class of the driver, and a template of the same name that asks for one place."""
    await world.add_class(name, **{"driverName": ShelfDriver.name, **more})
    await world.add_template(name, name)


async def restart(world: Any, drivers: Sequence[Driver[Any, Any]], *, after: float = 0) -> None:
    """The controller dies; some seconds later another one starts, with drivers that know nothing yet."""
    (task,) = [task for task in asyncio.all_tasks() if _runs(task, Controller.run)]
    world.killed.add(task)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(after)
    world.start_parley(drivers=drivers)


def _runs(task: asyncio.Task[Any], function: Callable[..., Any]) -> bool:
    return getattr(task.get_coro(), "__qualname__", "") == function.__qualname__
