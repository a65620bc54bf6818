"""Drivers in random lives with standalone drivers: disks, lenders, vaults. What they hold outlives processes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.scheduler.standalone_lives.kinds import NODE_NAMES

from parley.sdk import Allocation, Answer, Driver, Held, NoParameters, Request


@dataclass
class Provider:
    """Disks, one on each node. It outlives the driver's process."""

    held: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)


class Disks(Driver[NoParameters, NoParameters]):
    """Attaching takes `seconds`."""

    name = "disks.example.com"
    parameters = NoParameters
    class_parameters = NoParameters
    asynchronous = True

    def __init__(self, provider: Provider, seconds: float) -> None:
        self._provider = provider
        self._seconds = seconds

    async def consider(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        await asyncio.sleep(0.5)
        mine = {claim.uid for claim in request.claims}
        taken = {node for uid, node in self._provider.held.items() if uid not in mine}
        free = [node for node in NODE_NAMES if node not in taken] if len(request.claims) == 1 else []
        viable = tuple(node for node in nodes if node in free)
        others = tuple(node for node in free if node not in nodes)
        refused = {node: "no free disk" for node in nodes if node not in viable}
        return {claim.name: Answer(viable, None if viable else others, refused) for claim in request.claims}

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        (claim,) = request.claims
        held = self._provider.held
        if any(other == node and uid != claim.uid for uid, other in held.items()):
            raise RuntimeError("the disk is taken")
        if held.get(claim.uid, node) != node:
            raise RuntimeError("still elsewhere")
        held[claim.uid] = node
        request.progress("attaching")
        await asyncio.sleep(self._seconds)
        if node in self._provider.broken:
            held.pop(claim.uid, None)
            raise RuntimeError("the array is busy")
        return {claim.name: Allocation(data={"disk": node})}

    async def deallocate(self, uid: str) -> None:
        await asyncio.sleep(0.1)
        self._provider.held.pop(uid, None)

    def restore(self, held: Held) -> None:
        if held.node is not None:
            assert self._provider.held.get(held.uid, held.node) == held.node
            self._provider.held[held.uid] = held.node


class Lender(Driver[NoParameters, NoParameters]):
    """Has enough for everybody. What it lent, by UID, outlives its process; lending takes `seconds`."""

    name = "lender.example.com"
    parameters = NoParameters
    class_parameters = NoParameters
    asynchronous = True

    def __init__(self, lent: dict[str, set[str]], seconds: float) -> None:
        self._lent = lent.setdefault(self.name, set())
        self._seconds = seconds

    async def consider(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return self.viable(request, nodes)

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return {claim.name: Answer(tuple(nodes)) for claim in request.claims}

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        self._lent.update(claim.uid for claim in request.claims)
        await asyncio.sleep(self._seconds)
        return {claim.name: Allocation() for claim in request.claims}

    async def deallocate(self, uid: str) -> None:
        self._lent.discard(uid)

    def restore(self, held: Held) -> None:
        self._lent.add(held.uid)


class OtherLender(Lender):
    """A second one."""

    name = "other-lender.example.com"


class Vaults(Lender):
    """Its class has a limit."""

    name = "vaults.example.com"


class EmbeddedLender(Lender):
    """One in the controller: what it lent is known by the API alone."""

    name = "embedded-lender.example.com"
    asynchronous = False

    def __init__(self, lent: dict[str, set[str]]) -> None:
        lent.pop(self.name, None)
        super().__init__(lent, 0.0)
