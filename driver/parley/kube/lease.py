"""Leader election by a Lease object, with the certainty not to write after losing it.

    candidate --(lease free, released, or not renewed for its duration)--> leader --> run `lead`
    leader    --(another holder, or no renewal for `renew_deadline`)-----> LeaseLost, `lead` is cancelled

Only time that passes here counts, on a clock that goes on while the process is stopped or the machine sleeps.
The times in the object are for people. A leader counts from the moment it *sent* its last good renewal, the
others from when they *saw* it, which is later. It gives up `lease_seconds - renew_deadline` before anybody
may follow, and no write takes longer than that (`fencing`), so what it began is over by then.
What stays possible is a write that the network or the API server holds up for longer: send UIDs and
resourceVersions, which let the server refuse it.

A process that replaces one that has surely ended, as in a container that restarts, waits only as long as a
write of that one may take.

A lost lease is not won back: `run` raises, and the process should end. Its successor lists everything anew.
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
    """Raised when something may be done by the leader only, and this process is not it, or no longer surely."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds: how long a lease holds, after how long without renewal its holder gives up, and how often it
    renews (a candidate: looks). Raises ValueError where they leave no time for a write."""

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
        """A lease that holds that long, with the other times in proportion."""
        usual = cls()
        share = seconds / usual.lease_seconds
        return cls(seconds, usual.renew_deadline * share, usual.retry_seconds * share)

    @property
    def write_seconds(self) -> float:
        """How long a write may take, with a fifth to spare."""
        return (self.lease_seconds - self.renew_deadline) * 0.8


def boottime() -> float:
    """Seconds that pass whatever happens to the process, the wall clock or (on Linux) the running machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True)
class LeaseClock:
    """What an elector goes by: `wall` is written into the object, `monotonic` counted on, and `jitter` (0 up to 1)
    keeps candidates from looking at the same moment."""

    wall: Clock = utc
    monotonic: Callable[[], float] = boottime
    jitter: Callable[[], float] = random.random


class LeaseElector:
    """Takes part in the election for the Lease `namespace`/`name`.

    `identity` must be new for every process: a process that finds its own in the object takes itself for the
    holder. Processes whose identities begin with `replaced` had ended before this one began; "": not known of any.
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
        self._told = False
        self.times = times or LeaseTimes()

    def held(self) -> bool:
        """Whether a write may begin now."""
        return self._remaining() > 0

    def check(self) -> None:
        """Raises LeaseLost unless a write may begin now; the first time it is logged."""
        if self.held():
            return
        why = self._why_not()
        if not self._told:
            self._told = True
            log.info("not the leader: nothing is written", reason=why)
        raise LeaseLost(why)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, then run `lead` as long as it holds.

        Returns what ended it: `lead` itself (its end or its exception), a cancellation, or LeaseLost. `lead`
        has ended by then, cancelled if need be, and the lease is released if it was still held.
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
            raise LeaseLost(self._why_not()) from group  # the work noticed first

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
        """Acquire or renew once. False where another holds it or nothing could be learned."""
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
                self._renewed_at = None  # another one holds it: at once, whatever the clock shows
                return False
            if self._clock.monotonic() < self._seen_at + self._wait_for(holder):
                return False
        return await self._write(holder)

    async def _look(self) -> None:
        """Read the object, and note when it was first seen as it is."""
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            # Who held it until it was deleted does not know yet, and has his time all the same.
            self._seen = self._seen and msgspec.structs.replace(self._seen, metadata=ObjectMeta())
            return
        # A changed label, say, is no renewal; but the version to write against is always the latest.
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = self._clock.monotonic()
        self._seen = lease

    async def _write(self, holder: str) -> bool:
        sent = self._clock.monotonic()
        spec = self._spec(holder)
        seen, self._seen = self._seen, None  # unknown until the answer is there
        try:
            if seen is None or not seen.metadata.resource_version:
                body = {"metadata": {"name": self._name}, "spec": spec}
                self._seen = await self._client.create(LEASES, body, self._namespace)
            else:
                body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": spec}
                self._seen = await self._client.patch(LEASES, self._name, body, self._namespace)
        except (AlreadyExists, Conflict):
            return False  # another candidate wrote: look again
        self._seen_at = self._clock.monotonic()
        self._renewed_at = sent
        self._told = False
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
        """A write was sent and not answered: it may happen as long as a write may take."""
        self._settled_at = self._clock.monotonic() + self.times.write_seconds

    async def _release(self) -> None:
        """Let others lead at once, unless a write of ours may still happen. Only a lease that surely is ours is
        touched."""
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
            await self._look()  # the end fell into a renewal
        self._renewed_at = None
        if self._seen is None or self._seen.spec.holder_identity != self._identity:
            return
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
        body = {"metadata": {"resourceVersion": self._seen.metadata.resource_version}, "spec": spec}
        await self._client.patch(LEASES, self._name, body, self._namespace)

    def _remaining(self) -> float:
        """Seconds for which the lease may still be relied on without renewal; 0 and less when not."""
        renewed_at = self._renewed_at  # read once: other threads ask, too
        if renewed_at is None:
            return 0
        return renewed_at + self.times.renew_deadline - self._clock.monotonic()

    def _wait_for(self, holder: str) -> float:
        """How long the holder has without renewal, by the longer of its and our settings; if it has ended, how
        long its last write may take."""
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
    """Cancel what runs and wait until it has ended. What it raises while ending is logged, and not in the way."""
    if leading.done():
        return
    leading.cancel()
    await asyncio.wait((leading,))
    error = None if leading.cancelled() else leading.exception()
    if error is not None and not isinstance(error, LeaseLost):
        log.warning("the leader's work ended badly", error=str(error), exc_info=error)
