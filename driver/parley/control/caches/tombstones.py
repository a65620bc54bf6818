"""Reports objects that can't be decoded: an event on each, at a limited rate.

Users who may create objects may create many, and change them all the time. So one event is written a second, for
each object only about its latest state, and none for objects beyond `_MOST`: the log and the metric
`parley_undecodable_objects` have them all.
"""

import asyncio
from collections import OrderedDict
from typing import Any

from parley.api import reasons
from parley.api.resources import Resource
from parley.control.publishing.events import Recorder
from parley.kube.client import Tombstone

PAUSE = 1.0
"""Seconds between two events."""

_MOST = 1000
"""The number of objects that may wait for their event."""


class Tombstones:
    """Receives objects that can't be decoded, and reports them to their users."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: OrderedDict[str, tuple[Resource[Any], Tombstone]] = OrderedDict()
        self._arrived = asyncio.Event()

    def received(self, resource: Resource[Any], stone: Tombstone) -> None:
        """Take an object that can't be decoded, to be reported."""
        if stone.uid in self._waiting or len(self._waiting) < _MOST:
            self._waiting[stone.uid] = (resource, stone)
            self._arrived.set()

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            await self._arrived.wait()
            _, (resource, stone) = self._waiting.popitem(last=False)
            if not self._waiting:
                self._arrived.clear()
            await self._recorder.warn(
                resource.kind,
                resource.api_version,
                stone.namespace,
                stone.name,
                stone.uid,
                reasons.UNREADABLE,
                f"Parley can't read this {resource.kind} and leaves it alone: {stone.reason}",
            )
            await asyncio.sleep(PAUSE)
