"""The device driver as soaks run it: its allocations may fail or take a while, and what it holds can be read."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from parley.drivers.device import DeviceDriver
from parley.sdk import Allocation, Device


class CountedDriver(DeviceDriver):
    """The device driver, with a view of what it holds, and with allocations that fail or take a moment."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.failing = 0.0
        self.allocating: Callable[[str], None] = lambda _: None
        """Called with the UID of the pod for which the driver is asked to allocate (`AnnouncingDriver`)."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        if self.failing and self._chance.random() < self.failing:
            raise RuntimeError("the device did not come up")
        allocations = await super().allocate(request, node)
        if self.failing and self._chance.random() < self.failing:
            await asyncio.sleep(self._chance.uniform(0, 2))
        return allocations

    def held(self) -> Mapping[str, tuple[Device, ...]]:
        """Devices by the claim's UID."""
        return {uid: devices for uid, (devices, _) in self._inventory._held.items()}


class TardyDriver(CountedDriver):
    """Allocations take up to 25 s, in which a scheduler that has chosen a node waits."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        await asyncio.sleep(self._chance.choice((0, 8, 25)))
        return found


class AnnouncingDriver(CountedDriver):
    """To be put before all others: it tells for which pod it is asked before anything takes a while, as the choice
    was made at that moment."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        self.allocating(request.pod.uid)
        return await super().allocate(request, node)
