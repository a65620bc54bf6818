"""Leader election by a Lease object that guarantees that no write is sent after the lease is lost.

    candidate --(lease free, released, or not renewed for its duration)--> leader --> run `lead`
    leader    --(another holder, or no renewal for `renew_deadline`)-----> LeaseLost, `lead` is cancelled

Only time measured by this process counts, on a clock that advances while the process is stopped or the machine
sleeps. The times in the object are for humans. A leader counts from the moment it *sent* its last successful
renewal, candidates from when they *saw* it, which is later. The leader gives up `lease_seconds - renew_deadline`
before a candidate may take over, and no write takes longer than that (`fencing`), so its writes are over by then.
A write that the network or the API server delays for longer is still possible: send UIDs and resourceVersions,
which let the server refuse it.

A process that replaces one that has certainly ended, as in a restarted container, waits only as long as a write of
that one may take.

A lost lease is not won back: `run` raises, and the process should end. Its successor lists everything again.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import structlog

from parley.api.builtin import Lease, ObjectMeta
from parley.api.resources import LEASES
from parley.kube.client import AlreadyExists, ApiError, Client, Conflict, NotFound, OutcomeUnknown
from parley.kube.clock import Clock, rfc3339_micro, utc

log = structlog.get_logger(__name__)


class LeaseLost(Exception):
    """Raised when only the leader may do something, and this process is not, or may no longer be, the leader."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds: how long a lease lasts, after how long without renewal its holder gives up, and how often the
    holder renews it and candidates read it. Raises ValueError if they leave no time for a write."""

    lease_seconds: float = 15
    renew_deadline: float = 10
    retry_seconds: float = 2

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_deadline < self.lease_seconds:
            raise ValueError(
                f"retry_seconds {self.retry_seconds:g} must be below renew_deadline {self.renew_deadline:g}, "
                f"and that below lease_seconds {self.lease_seconds:g}"
            )

    @classmethod
    def lasting(cls, seconds: float) -> Self:
        """The times of a lease that lasts so many seconds, the others in proportion."""
        usual = cls()
        share = seconds / usual.lease_seconds
        return cls(seconds, usual.renew_deadline * share, usual.retry_seconds * share)

    @property
    def write_seconds(self) -> float:
        """How long a write may take, with a fifth to spare."""
        return (self.lease_seconds - self.renew_deadline) * 0.8


def boottime() -> float:
    """Seconds on a clock that advances while the process is stopped or (on Linux) the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True)
class LeaseClock:
    """The clocks of an elector: `wall` is written into the object, `monotonic` measures intervals, and `jitter` (0
    up to 1) keeps candidates from reading the object at the same moment."""

    wall: Clock = utc
    monotonic: Callable[[], float] = boottime
    jitter: Callable[[], float] = random.random


class LeaseElector:
    """Takes part in the election for the Lease `namespace`/`name`.

    `identity` must be new for every process: a process that finds its own in the object considers itself the
    holder. Processes whose identities begin with `replaced` had ended before this one began ("": none is known).
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        clock: LeaseClock = LeaseClock(),
        replaced: str = "",
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._replaced = replaced
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._settled_at = -math.inf
        self._logged = False
        self.times = times or LeaseTimes()

    def held(self) -> bool:
        """Whether a write may begin now."""
        return self._remaining() > 0

    def check(self) -> None:
        """Raises LeaseLost unless a write may begin now, and logs that the first time."""
        if self.held():
            return
        why = self._why_not()
        if not self._logged:
            self._logged = True
            log.info("not the leader: nothing is written", reason=why)
        raise LeaseLost(why)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits for the lease, then runs `lead` as long as the lease is held.

        Returns when `lead` returns; raises the exception of `lead`, a cancellation, or LeaseLost. `lead` has ended
        by then, cancelled if necessary, and the lease is released if it was still held.
        """
        await self._acquire()
        leading = asyncio.ensure_future(lead())
        try:
            await self._renew_while(leading)
        finally:
            await _end(leading)
            await self._release()
        try:
            leading.result()
        except ExceptionGroup as group:
            if group.split(LeaseLost)[1] is not None:
                raise
            raise LeaseLost(self._why_not()) from group  # `lead` noticed before the elector

    async def _acquire(self) -> None:
        while True:
            if await self._attempt():
                log.info("lease acquired", lease=self._label, identity=self._identity)
                return
            await asyncio.sleep(self.times.retry_seconds * (1 + 0.2 * self._clock.jitter()))

    async def _renew_while(self, leading: asyncio.Future[None]) -> None:
        while True:
            pause = min(self.times.retry_seconds, max(self._remaining(), 0))
            await asyncio.wait((leading,), timeout=pause)
            if leading.done():
                return
            if not self.held():
                raise LeaseLost(self._why_not())
            await self._attempt()

    async def _attempt(self) -> bool:
        """Tries once to acquire or renew. False if another process holds the lease, or the request failed."""
        limit = self.times.write_seconds if self._renewed_at is None else self._remaining()
        try:
            async with asyncio.timeout(min(self.times.write_seconds, limit)):
                return await self._acquire_or_renew()
        except (ApiError, OutcomeUnknown, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            log.warning("lease not written", lease=self._label, identity=self._identity, error=reason)
            return False

    async def _acquire_or_renew(self) -> bool:
        if self._renewed_at is None or self._seen is None:
            await self._look()
        holder = self._seen.spec.holder_identity if self._seen else ""
        if holder not in ("", self._identity):
            if self._renewed_at is not None:
                self._renewed_at = None  # another process holds it: the lease is lost before the deadline
                return False
            if self._clock.monotonic() < self._seen_at + self._wait_for(holder):
                return False
        return await self._write(holder)

    async def _look(self) -> None:
        """Reads the object, and notes when this state of it was first seen."""
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            # The holder may not know of the deletion yet, so candidates still wait for its time to run out.
            self._seen = self._seen and msgspec.structs.replace(self._seen, metadata=ObjectMeta())
            return
        # A changed label, for example, is no renewal; but writes use the latest resourceVersion.
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = self._clock.monotonic()
        self._seen = lease

    async def _write(self, holder: str) -> bool:
        sent = self._clock.monotonic()
        spec = self._spec(holder)
        seen, self._seen = self._seen, None  # unknown until the answer arrives
        try:
            if seen is None or not seen.metadata.resource_version:
                body = {"metadata": {"name": self._name}, "spec": spec}
                self._seen = await self._client.create(LEASES, body, self._namespace)
            else:
                body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": spec}
                self._seen = await self._client.patch(LEASES, self._name, body, self._namespace)
        except (AlreadyExists, Conflict):
            return False  # another candidate wrote: read the object again
        self._seen_at = self._clock.monotonic()
        self._renewed_at = sent
        self._logged = False
        return True

    def _spec(self, holder: str) -> dict[str, Any]:
        now = rfc3339_micro(self._clock.wall())
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self.times.lease_seconds)),
            "renewTime": now,
        }
        if holder != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = self._seen.spec.lease_transitions + 1 if self._seen else 0
        return spec

    def write_lost(self) -> None:
        """Notes that a write was sent and not answered: it may still succeed within `write_seconds`."""
        self._settled_at = self._clock.monotonic() + self.times.write_seconds

    async def _release(self) -> None:
        """Releases the lease, if it is still held, so that another process can lead at once; waits until no write
        of ours can succeed any more."""
        if (unsettled := self._settled_at - self._clock.monotonic()) > 0:
            await asyncio.sleep(unsettled)
        if not self.held():
            return
        try:
            async with asyncio.timeout(self.times.write_seconds):
                await self._give_up()
        except (ApiError, OutcomeUnknown, TimeoutError) as error:
            log.warning("lease not released", lease=self._label, error=str(error) or "no answer in time")

    async def _give_up(self) -> None:
        if self._seen is None:
            await self._look()  # a renewal was interrupted
        self._renewed_at = None
        if self._seen is None or self._seen.spec.holder_identity != self._identity:
            return
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
        body = {"metadata": {"resourceVersion": self._seen.metadata.resource_version}, "spec": spec}
        await self._client.patch(LEASES, self._name, body, self._namespace)

    def _remaining(self) -> float:
        """Seconds for which the lease may still be relied on without renewal; 0 or less if not held."""
        renewed_at = self._renewed_at  # read once: other threads call this, too
        if renewed_at is None:
            return 0
        return renewed_at + self.times.renew_deadline - self._clock.monotonic()

    def _wait_for(self, holder: str) -> float:
        """How long to wait for a renewal by the holder, by the longer of its and our settings; if its process has
        ended, how long its last write may take."""
        theirs = self._seen.spec.lease_duration_seconds if self._seen else 0
        seconds = max(self.times.lease_seconds, theirs)
        has_ended = self._replaced and holder.startswith(self._replaced)
        return LeaseTimes.lasting(seconds).write_seconds if has_ended else seconds

    @property
    def _label(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _why_not(self) -> str:
        if self._renewed_at is not None:
            since = self._clock.monotonic() - self._renewed_at
            limit = self.times.renew_deadline
            return (
                f"lease {self._label}: {self._identity} did not renew it for {since:.1f} s of at most {limit:g} s"
            )
        holder = self._seen.spec.holder_identity if self._seen else ""
        return f"lease {self._label}: held by {holder or 'nobody'}, not by {self._identity}"


async def _end(leading: asyncio.Future[None]) -> None:
    """Cancels the leader's work and waits until it has ended. Logs an exception that it raises while ending."""
    if leading.done():
        return
    leading.cancel()
    await asyncio.wait((leading,))
    error = None if leading.cancelled() else leading.exception()
    if error is not None and not isinstance(error, LeaseLost):
        log.warning("the leader's work ended badly", error=str(error), exc_info=error)
