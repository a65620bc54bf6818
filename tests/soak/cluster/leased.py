"""A process of Parley's in a soak: it works while it leads, and can be killed, stopped and disconnected."""

import asyncio
import random
from abc import ABC, abstractmethod
from datetime import timedelta

from tests.soak.cluster.observed import ObservedServer
from tests.soak.cluster.processes import ProcessLoop, acting_as
from tests.support.trouble import Rates, TroubleClient

from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.kube.fencing import LeasedClient
from parley.kube.lease import LeaseClock, LeaseElector, LeaseLost, LeaseTimes

MOST_SKEW = 60.0
"""Seconds that a wall clock is ahead or behind at most, where wall clocks are set."""

TIMES = LeaseTimes(lease_seconds=30, renew_deadline=24, retry_seconds=8)


class LeasedProcess(ABC):
    """Started at once. It leads by the Lease of the name `lease`; if that is "", it always does."""

    def __init__(
        self, server: ObservedServer, chance: random.Random, clock: Clock, name: str, lease: str, rates: Rates
    ) -> None:
        self.name = name
        self.dead = False
        self.ends = False
        self.skew = 0.0
        """Seconds that the wall clock of its machine is ahead."""
        self.clock: Clock = lambda: clock() + timedelta(seconds=self.skew)
        self.client = TroubleClient(server.client(), chance, rates)
        server.fences[name] = self.may_send
        times = LeaseClock(self.clock, asyncio.get_running_loop().time, chance.random)
        self._elector = LeaseElector(self.client, "parley-system", lease, name, TIMES, times) if lease else None
        with acting_as(name):
            self.task = asyncio.create_task(self._run(), name=name)

    def may_send(self) -> bool:
        """Whether it may still send requests, by its own view of its lease."""
        return not self.dead and (self._elector is None or self._elector.held())

    async def _run(self) -> None:
        if self._elector is None:
            await self._lead()
        else:
            await self._elector.run(self._lead)

    async def _lead(self) -> None:
        transport = self._transport()
        await self._work(transport if self._elector is None else LeasedClient(transport, self._elector))

    def _transport(self) -> Client:
        return self.client

    @abstractmethod
    async def _work(self, client: Client) -> None:
        """Until it is cancelled."""

    @property
    @abstractmethod
    def leads(self) -> bool:
        """Whether it works now."""

    @abstractmethod
    def set_trouble(self, rates: Rates, failing: float, *, misbehaving: bool) -> None:
        """Set the trouble of its network and of its driver."""

    async def kill(self, *, clean: bool) -> None:
        """End it: at once, or as on SIGTERM, when it may release its lease."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        self.dead, self.ends = not clean, True
        loop.continue_process(self.name)
        self.task.cancel()
        await asyncio.wait([self.task])
        self.dead = True


def lost_lease(error: BaseException | None) -> bool:
    """Whether the error is LeaseLost, also in a group of tasks."""
    if isinstance(error, BaseExceptionGroup):
        return all(lost_lease(inner) for inner in error.exceptions)
    return isinstance(error, LeaseLost)
