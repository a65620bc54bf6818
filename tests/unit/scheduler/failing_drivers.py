"""Drivers that raise, hang, cancel themselves or do not know their own records, beside one that works."""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.builtin import ResourceSlice
from parley.drivers.device import DeviceDriver
from parley.drivers.tokens import TokensDriver
from parley.negotiation.answers import Answer
from parley.sdk import Allocation, Held

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


NAMESPACE = "default"

BOTH = pytest.mark.scheduling_paths("native", "extender")

AT_ONCE = ("viable", "score", "units")


class Failing(TokensDriver):
    """A driver that raises in some of its methods for as long as they are named here."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.failing = set(methods)

    def _maybe(self, method: str) -> None:
        if method in self.failing:
            raise KeyError(method)

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        self._maybe("viable")
        return super().viable(request, nodes)

    def score(self, request: Any, nodes: Sequence[str]) -> Mapping[str, float]:
        self._maybe("score")
        return {}

    def units(self, claim: Any) -> int:
        self._maybe("units")
        return super().units(claim)

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        self._maybe("allocate")
        return await super().allocate(request, node)

    async def deallocate(self, uid: str) -> None:
        self._maybe("deallocate")
        await super().deallocate(uid)

    def restore(self, held: Held) -> None:
        self._maybe("restore")
        super().restore(held)


class Unsure(Failing):
    """Gives back what a claim holds, and may not get to say so."""

    async def deallocate(self, uid: str) -> None:
        await TokensDriver.deallocate(self, uid)
        self._maybe("deallocate")


class Cancelling(Failing):
    """Awaits a task of its own that was cancelled."""

    def _maybe(self, method: str) -> None:
        if method in self.failing:
            raise asyncio.CancelledError


class Hanging(Failing):
    """What is behind it does not answer."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        await self._answered("allocate")
        return await super().allocate(request, node)

    async def deallocate(self, uid: str) -> None:
        await self._answered("deallocate")
        await super().deallocate(uid)

    async def _answered(self, method: str) -> None:
        if method in self.failing:
            await asyncio.sleep(math.inf)

    def _maybe(self, method: str) -> None:
        """It raises nothing."""


class Blind(DeviceDriver):
    """Does not understand a node's slice."""

    def observe(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool | Collection[str]:
        if new is not None and new.spec.node_name == "strange":
            raise KeyError("strange")
        return super().observe(old, new)


async def with_tokens(world: World, driver: Failing) -> None:
    """Two nodes, a class of tokens with that driver, and devices beside."""
    for node in ("a", "b"):
        await world.add_node(node, devices=2)
    await world.add_class()
    await world.add_template()
    await world.add_class("seats", driverName=driver.name, parameters={"pool": 3}, limits=[{"units": 100}])
    await world.add_template("seat", "seats", count=1)
    world.start_parley(drivers=[DeviceDriver(), driver])
