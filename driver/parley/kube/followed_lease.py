"""Leader election that follows another Lease: to lead only on the host where that one is held.

    waiting   --(the followed Lease is held on this host)-------> candidate of the own lease
    candidate --(it is not held here any more)------------------> waiting
    leader    --(it is held on another host)--------------------> LeaseLost

A kube-scheduler that calls an extender on loopback reaches the controller of its own pod, whichever replica leads.
So the controller goes where the scheduler is: that one writes `<host name>_<UUID>` into its Lease, and the
containers of a pod share the host name. A Lease that nobody holds, or none at all, moves no leader.

This decides who *should* lead. That only one does is the own lease's matter: what is known here may be old.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from parley.api.builtin import Lease
from parley.api.resources import LEASES
from parley.kube.client import Client
from parley.kube.informer import Informer, Selection
from parley.kube.lease import LeaseElector, LeaseLost

log = structlog.get_logger(__name__)


def held_on(holder: str, host: str) -> bool:
    """Whether that identity is of a process on the host; a host name has no underscore in it."""
    return holder.startswith(f"{host}_")


class FollowedLease:
    """Lets a process on `host` take part in an election while the Lease `namespace`/`name` is held there."""

    def __init__(self, client: Client, namespace: str, name: str, host: str) -> None:
        self._label = f"{namespace}/{name}"
        self._host = host
        self._holder = ""
        self._changed = asyncio.Event()
        one = Selection(namespace, field_selector=f"metadata.name={name}")
        self._leases = Informer(client, LEASES, one, on_change=self._note)

    async def run(self, elector: LeaseElector, lead: Callable[[], Awaitable[None]]) -> None:
        """As `LeaseElector.run`, but a candidate and a leader only as long as the followed Lease allows.

        Raises LeaseLost too when it is held on another host; `lead` has ended by then, the own lease is released.
        """
        watching = asyncio.ensure_future(self._leases.run())
        try:
            while True:
                log.info("waiting for the followed lease", lease=self._label, host=self._host)
                await self._until(lambda: held_on(self._holder, self._host), watching)
                if await self._beside(elector, lead, watching):
                    return
        finally:
            await _ended(watching)

    async def _beside(
        self, elector: LeaseElector, lead: Callable[[], Awaitable[None]], watching: asyncio.Future[None]
    ) -> bool:
        """Take part in the election. False when that was ended before it was won."""
        led = asyncio.Event()

        async def leading() -> None:
            led.set()
            await lead()

        electing = asyncio.ensure_future(elector.run(leading))
        try:
            await self._until(lambda: self._moved(led.is_set()), watching, electing)
        finally:
            await _ended(electing)
        if not electing.cancelled():
            electing.result()
            return True
        if led.is_set():
            holder = self._holder or "nobody"
            raise LeaseLost(f"followed lease {self._label}: held by {holder}, not on host {self._host}")
        return False

    def _moved(self, leads: bool) -> bool:
        """Whether what runs here should end: a leader only for another one, a candidate for nobody too."""
        return not held_on(self._holder, self._host) and (bool(self._holder) or not leads)

    async def _until(self, holds: Callable[[], bool], *running: asyncio.Future[Any]) -> None:
        """Return when that holds, or when something has ended that runs; raises what watching ended with."""
        watching, *_ = running
        while not holds() and not any(task.done() for task in running):
            self._changed.clear()
            change: asyncio.Future[Any] = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({change, *running}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
        if watching.done():
            watching.result()

    def _note(self, _: Lease | None, lease: Lease | None) -> None:
        holder = lease.spec.holder_identity if lease is not None else ""
        if holder != self._holder:
            self._holder = holder
            self._changed.set()


async def _ended(task: asyncio.Future[None]) -> None:
    """Cancel it and wait until it has ended; what it ended with stays in it."""
    task.cancel()
    await asyncio.wait((task,))
