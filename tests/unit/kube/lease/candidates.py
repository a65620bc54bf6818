"""Candidates for a Lease in virtual time: each has a network, clocks, and a client that writes as the leader."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tests.support.faults import FaultClient

from parley.api.builtin import Lease
from parley.api.resources import LEASES
from parley.kube.client import Call, OutcomeUnknown
from parley.kube.fencing import LeasedClient
from parley.kube.lease import LeaseClock, LeaseElector
from parley.kube.memory import MemoryServer

POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
NO_ROUTE = OutcomeUnknown("no route to host")


def now() -> float:
    """Virtual seconds since the test began."""
    return asyncio.get_running_loop().time()


class Process:
    """One candidate with its own network and clocks. `led` are the times at which it began and ceased to lead."""

    def __init__(
        self, server: MemoryServer, identity: str, client: FaultClient | None = None, replaced: str = ""
    ) -> None:
        self.asleep = 0.0
        self.wall_error = timedelta()
        self.trouble: Callable[[Call], None] = lambda _: None
        self.led: list[tuple[str, float]] = []
        self.client = client or FaultClient(server.client(), before=lambda call: self.trouble(call))
        self.elector = LeaseElector(
            self.client,
            "parley",
            "controller",
            identity,
            clock=LeaseClock(
                wall=lambda: datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=now()) + self.wall_error,
                monotonic=lambda: now() + self.asleep,
                jitter=lambda: 0,
            ),
            replaced=replaced,
        )
        self.writer = LeasedClient(self.client, self.elector)

    async def lead(self) -> None:
        """The leader's work: note when it begins and ceases."""
        self.led.append(("began", now()))
        try:
            await asyncio.sleep(1e9)
        finally:
            self.led.append(("ceased", now()))

    def cut_off(self, error: Exception = NO_ROUTE) -> None:
        """From now on no request arrives."""

        def fail(_: Call) -> None:
            raise error

        self.trouble = fail


Start = Callable[[Process], asyncio.Task[None]]
"""Starts a candidate; a fixture."""


async def lease(server: MemoryServer) -> Lease:
    """The Lease as the API server has it."""
    return await server.client().get(LEASES, "controller", "parley")
