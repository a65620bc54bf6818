"""Leader election that follows another Lease: this process leads only on the host where that Lease is held.

    waiting   --(the followed Lease is held on this host)-------> candidate of the own lease
    candidate --(it is not held here any more)------------------> waiting
    leader    --(it is held on another host)--------------------> LeaseLost

A kube-scheduler that calls an extender on loopback reaches the controller of its own pod, whichever replica leads.
So the controller leads where the scheduler leads: the scheduler writes `<host name>_<UUID>` into its Lease, and
the containers of a pod share the host name. A followed Lease that is missing or not held deposes no leader.

This decides who *should* lead. The own lease ensures that only one does: the cache here may be behind.
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
    """Whether the holder identity is that of a process on the host; host names contain no underscore."""
    return holder.startswith(f"{host}_")


class FollowedLease:
    """Lets a process on `host` take part in an election while the Lease `namespace`/`name` is held there."""

    def __init__(self, client: Client, namespace: str, name: str, host: str) -> None:
        self._label = f"{namespace}/{name}"
        self._host = host
        self._holder = ""
        self._changed = asyncio.Event()
        followed = Selection(namespace, field_selector=f"metadata.name={name}")
        self._leases = Informer(client, LEASES, followed, on_change=self._lease_changed)

    async def run(self, elector: LeaseElector, lead: Callable[[], Awaitable[None]]) -> None:
        """The same as `LeaseElector.run`, but a candidate or leader only as long as the followed Lease allows it.

        Also raises LeaseLost when the followed Lease moves to another host; `lead` and the own lease have ended.
        """
        watching = asyncio.ensure_future(self._leases.run())
        try:
            while True:
                log.info("waiting for the followed lease", lease=self._label, host=self._host)
                await self._until(lambda: held_on(self._holder, self._host), watching)
                if await self._elect(elector, lead, watching):
                    return
        finally:
            await _cancel(watching)

    async def _elect(
        self, elector: LeaseElector, lead: Callable[[], Awaitable[None]], watching: asyncio.Future[None]
    ) -> bool:
        """Takes part in the election. False if the followed Lease ended that before the election was won."""
        led = asyncio.Event()

        async def leading() -> None:
            led.set()
            await lead()

        electing = asyncio.ensure_future(elector.run(leading))
        try:
            await self._until(lambda: self._must_stop(led.is_set()), watching, electing)
        finally:
            await _cancel(electing)
        if not electing.cancelled():
            electing.result()
            return True
        if led.is_set():
            holder = self._holder or "nobody"
            raise LeaseLost(f"followed lease {self._label}: held by {holder}, not on host {self._host}")
        return False

    def _must_stop(self, leads: bool) -> bool:
        """Whether to stop here: a leader only if another host holds the Lease, a candidate also if no one does."""
        return not held_on(self._holder, self._host) and (bool(self._holder) or not leads)

    async def _until(self, holds: Callable[[], bool], *running: asyncio.Future[Any]) -> None:
        """Waits until the condition holds or one of the tasks has ended; raises the first task's exception."""
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

    def _lease_changed(self, _: Lease | None, lease: Lease | None) -> None:
        holder = lease.spec.holder_identity if lease is not None else ""
        if holder != self._holder:
            self._holder = holder
            self._changed.set()


async def _cancel(task: asyncio.Future[None]) -> None:
    """Cancels the task and waits until it has ended; leaves its result or exception in it."""
    task.cancel()
    await asyncio.wait((task,))
