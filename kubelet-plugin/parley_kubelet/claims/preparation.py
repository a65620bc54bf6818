"""Prepares claims on this node and undoes it: from a claim's name to a driver's hook and files on the disk.

    prepare     prepared in this boot, for what the claim has now? then done. Otherwise let the driver admit the
                claim as it is read live, record the intention, call the driver, write the CDI specification, and
                record what the driver returned
    unprepare   record that it begins, call the driver, remove the CDI specification, and the record last; the
                claim itself is not asked

    (nothing) --> preparing --> prepared --> unpreparing --> (nothing)
    prepare again, where it is not prepared, or was in an earlier boot or for something else: --> preparing

So a crash at any point leaves either nothing or a record, and the kubelet's next call finishes what is missing.
One claim is handled by one call at a time, in the order of the calls; a call that the kubelet gives up goes on to
its end. One whose driver is not done in time is cancelled, and other calls for the claim fail until it has ended.
What a claim was granted is read by `handle`, what a container gets is decided by the driver and `cdi`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import orjson
import structlog

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, NODES, Resource
from parley.kube.cancelling import uncancelled
from parley.kube.client import ApiError, Client, NotFound, OutcomeUnknown
from parley_kubelet.cdi.specifications import Specifications
from parley_kubelet.claims.handle import Granted, goes_by_labels, granted
from parley_kubelet.claims.typed import TypedEntries
from parley_kubelet.hooks import HeldClaim, NodeClaim, NodeDriver, Refused
from parley_kubelet.state.checkpoint import CheckpointEntry, Entries, HeldDevice
from parley_kubelet.state.durable import Folder
from parley_kubelet.state.records import SharedCheckpoint

LIMIT: Final = 40.0
"""Seconds for a call, waiting for another one of the same claim included; the kubelet gives it up after 45."""

ENDING: Final = 1.0
"""Seconds that a call has to end when its time is over; its claim is held by it until it does."""

CLOSING: Final = 2.0
"""Seconds for calls that are cancelled at the end: a disk that does not answer may hold some for ever."""

READ_LIMIT: Final = 20.0
"""Seconds to read a claim."""

TYPED_AT_ONCE: Final = 128
"""So many entries are converted for a hook before others of the event loop have their turn."""

READS_AT_ONCE: Final = 4
"""So many claims are read at the same time: each takes a connection of 0.3 MB; with 10 of them a hundred claims at
once were prepared 4 % faster."""

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClaimName:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def boot_id() -> str:
    """Which boot of this machine this is (Linux, random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


async def _nothing_published() -> None:
    """Nobody publishes what the driver offers."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process has for the claims of one driver. `thread` is for the checkpoint, None for one of the event
    loop's; `published` returns when what the driver offers by now is published."""

    thread: Executor | None = None
    published: Callable[[], Awaitable[None]] = _nothing_published


class Preparation:
    """The claims of one driver on one node. `boot` identifies this boot of the machine."""

    def __init__(
        self,
        driver: NodeDriver[Any, Any],
        client: Client,
        *,
        state: Folder,
        cdi: Folder,
        boot: str,
        limit: float = LIMIT,
        process: Surroundings = Surroundings(),
    ) -> None:
        self.driver = driver
        self._client = client
        self._state = state
        self._records = SharedCheckpoint(state, driver.node, process.thread)
        self._published = process.published
        self._specifications = Specifications(cdi, driver.name)
        self.boot = boot
        self._limit = limit
        self._typed = TypedEntries(driver)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
        self._under_way: Counter[str] = Counter()
        self._calls: set[asyncio.Task[Any]] = set()
        self.released = asyncio.Event()
        """Set whenever something is no longer held; its waiter clears it."""

    @property
    def known(self) -> Entries:
        """What is held as last read or written, without asking the disk."""
        return self._records.known

    @property
    def checkpoint_errors(self) -> int:
        """So often the checkpoint could not be read or written."""
        return self._records.errors

    def blocked(self) -> str:
        """What the driver says that keeps its calls from ending; "" if nothing."""
        try:
            return self.driver.blocked()
        except Exception as error:
            return f"its hook blocked() failed: {type(error).__name__}: {error}"

    def restore(self) -> Entries:
        """Bring the CDI folder in line with the checkpoint, and return what is held. Blocks.

        What another process is doing something for now, as in a rolling update, is left to it. Raises
        CheckpointError or OSError; then nothing may be prepared.
        """
        self._state.sweep()
        self._specifications.sweep()
        found = self._specifications.claims()
        with self._state.free_names_locked({*found, *self._records.read_now()}) as free:
            entries = self._records.read_now()
            for uid in free:
                self._restore(uid, entries.get(uid), has_file=uid in found)
        return entries

    def _restore(self, uid: str, entry: CheckpointEntry | None, *, has_file: bool) -> None:
        if entry is not None and entry.phase == "prepared":
            self._specifications.write(entry)
        elif has_file:
            self._specifications.remove(uid)
            if entry is None:
                log.warning("orphaned CDI specification removed", driver=self.driver.name, uid=uid)

    async def entries(self) -> Entries:
        """All that is held. Raises CheckpointError or OSError."""
        return await self._records.read()

    async def held(self) -> tuple[HeldClaim[Any], ...]:
        """The same as the driver's hooks get it, without what this version of the driver does not understand."""
        entries, found = tuple((await self._records.read()).values()), list[HeldClaim[Any]]()
        for at in range(0, len(entries), TYPED_AT_ONCE):
            found += self._typed.all(entries[at : at + TYPED_AT_ONCE])
            await asyncio.sleep(0)  # of 14,000 that takes a second, in which the kubelet's calls would wait
        return tuple(found)

    async def holds(self, uid: str) -> bool:
        """Whether anything of the claim is here, or may be in a moment: a call of this or another process for it
        is under way. Raises CheckpointError or OSError."""
        if uid in self._under_way or self._state.is_name_locked(uid) or uid in await self._records.read():
            return True
        return uid in self._under_way  # a call may have come while the checkpoint was read

    async def prepare(self, claim: ClaimName) -> CheckpointEntry:
        """Make the claim ready. Raises Refused, CheckpointError, OSError, or what the driver raises."""
        return await self._in_order(claim, self._prepare)

    async def unprepare(self, claim: ClaimName) -> None:
        """Undo it; no error if nothing is held. Raises Refused, CheckpointError, OSError, or what the driver
        raises."""
        await self._in_order(claim, self._unprepare)
        self.released.set()

    async def unprepare_orphan(self, claim: ClaimName, judged: CheckpointEntry | None) -> bool:
        """Unprepare a claim that is not requested any more, and return whether that was done: not if its entry is
        another one by now, because the kubelet has asked meanwhile. Raises what `unprepare` does."""
        done: bool = await self._in_order(claim, partial(self._unprepare_orphan, judged))
        if done:
            self.released.set()
        return done

    async def remove_data(self, claim: ClaimName, devices: Iterable[HeldDevice], handle: Any) -> None:
        """Have the driver remove what pods left for a claim that has ended. Raises Refused, or what it raises."""
        entry = CheckpointEntry.of(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            phase="unpreparing",
            boot=self.boot,
            results=(),
            devices=tuple(devices),
            handle=handle,
            state=None,
        )
        with uncancelled(self.driver.name):
            await self.driver.remove_data(self._typed.held(entry).claim)

    async def left(self) -> Sequence[NodeClaim[Any]]:
        """Claims of which there is something by the driver's own records. Raises what it raises."""
        with uncancelled(self.driver.name):
            return await self.driver.left()

    async def close(self) -> None:
        """Cancel calls that are still under way; they are in the checkpoint."""
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=CLOSING)

    async def _in_order(self, claim: ClaimName, work: Callable[[ClaimName], Coroutine[Any, Any, T]]) -> T:
        call = asyncio.create_task(self._alone(claim, work))
        self._calls.add(call)
        self._under_way[claim.uid] += 1
        call.add_done_callback(partial(self._ended, claim.uid))
        await asyncio.wait({call}, timeout=self._limit + ENDING)
        if not call.done():
            raise self._not_done(claim)
        return call.result()

    def _ended(self, uid: str, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        self._under_way -= Counter({uid: 1})
        if not call.cancelled():
            call.exception()  # seen, also if its caller has given it up

    def _not_done(self, claim: ClaimName) -> Refused:
        why = self.blocked() or "see the log of parley-kubelet on this node"
        return Refused(
            f"claim {claim}: driver {self.driver.name} is not done after {self._limit:g} s: {why};"
            " the kubelet will try again"
        )

    async def _alone(self, claim: ClaimName, work: Callable[[ClaimName], Awaitable[T]]) -> T:
        limit, turn = asyncio.timeout(self._limit), self._locks.setdefault(claim.uid, asyncio.Lock())
        try:
            async with limit, turn, self._state.locked_name(claim.uid):
                return await work(claim)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._not_done(claim) from None

    async def _prepare(self, claim: ClaimName) -> CheckpointEntry:
        before = (await self._records.read()).get(claim.uid)
        if before is not None and before.phase == "prepared" and await self._stands(claim, before):
            await self._records.change(claim.uid, partial(self._with_file, before))
            return before
        entry = await self._intended(claim, before)
        held = self._typed.held(entry)
        with uncancelled(self.driver.name):
            prepared = await self.driver.prepare(held.claim)
        _check_state(claim, prepared.state)
        done = entry.with_changes(phase="prepared", edits=prepared.edits, state=dict(prepared.state))
        await self._records.change(claim.uid, partial(self._with_file, done))
        return done

    async def _stands(self, claim: ClaimName, prepared: CheckpointEntry) -> bool:
        """Whether containers may have what is prepared. A claim may have been allocated here anew meanwhile if the
        controller took the node for lost and waited for no receipt: because its Node was deleted, and the kubelet,
        started again, made another. Where the claim can't be read, or is not for this node, nothing changes."""
        if prepared.boot != self.boot:
            return prepared.boot == ""
        try:
            found = await self._granted(claim)
        except Refused:
            return True
        entry = self._entry(claim, found, prepared)
        return (entry.handle, entry.devices) == (prepared.handle, prepared.devices)

    def _with_file(self, entry: CheckpointEntry, _: Entries) -> CheckpointEntry:
        """Decides that the entry stands once its file is there."""
        self._specifications.write(entry)
        return entry

    async def _intended(self, claim: ClaimName, before: CheckpointEntry | None) -> CheckpointEntry:
        """The entry to prepare, recorded. What was held before gives way if the claim has something else now: it
        may have been allocated anew while this machine was down, or taken for lost."""
        found = await self._granted(claim)
        entry = self._entry(claim, found, before)
        self._typed.check(entry, found.field)
        if before is not None and (before.handle, before.devices) != (entry.handle, entry.devices):
            await self._unprepare(claim)
            entry = entry.with_changes(state=None)

        def admitted(entries: Entries) -> CheckpointEntry:
            self.driver.admit(self._typed.held(entry).claim, self._typed.rivals(entry, entries))
            return entry

        await self._records.change(claim.uid, admitted)
        return entry

    async def _granted(self, claim: ClaimName) -> Granted:
        """What the claim has here now, read live. Raises Refused."""
        read, name = await self._read(claim), self.driver.node
        labels = await self._labels(claim) if goes_by_labels(read) else None
        return granted(read, uid=claim.uid, driver=self.driver.name, node=name, labels=labels)

    def _entry(self, claim: ClaimName, found: Granted, before: CheckpointEntry | None) -> CheckpointEntry:
        return CheckpointEntry.of(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            phase="preparing",
            boot=self.boot,
            node=self.driver.node,
            results=found.results,
            devices=tuple(HeldDevice(pool=device.pool, name=device.device) for device in found.devices),
            handle=found.handle,
            state=before.state if before else None,
        )

    async def _unprepare(self, claim: ClaimName) -> None:
        leaving = await self._records.change(claim.uid, partial(_leaving, claim.uid))
        if leaving is not None:
            await self._end(self._typed.held(leaving))
        else:  # the checkpoint may have been lost
            for left in await self.left():
                if left.uid == claim.uid:
                    await self._end(HeldClaim(left, None))
        await self._records.change(claim.uid, partial(self._without_file, claim.uid))

    async def _end(self, held: HeldClaim[Any]) -> None:
        """Nobody hears of it before what stays of it is published as taken: others would be promised its room."""
        with uncancelled(self.driver.name):
            await self.driver.unprepare(held)
        if self.driver.keeps_room(held.claim):
            await self._published()

    async def _unprepare_orphan(self, judged: CheckpointEntry | None, claim: ClaimName) -> bool:
        if (await self._records.read()).get(claim.uid) != judged:
            return False
        await self._unprepare(claim)
        return True

    def _without_file(self, uid: str, _: Entries) -> None:
        """Decides that nothing is held once the file is gone."""
        self._specifications.remove(uid)

    async def _read(self, claim: ClaimName) -> BuiltinClaim:
        try:
            return await self._get(f"claim {claim}: cannot be read", BUILTIN_CLAIMS, claim.name, claim.namespace)
        except NotFound:
            raise Refused(
                f"claim {claim}: does not exist: delete the pod, so that it is recreated with its claims"
            ) from None

    async def _labels(self, claim: ClaimName) -> Mapping[str, str]:
        """Those that this node has now. Raises Refused."""
        failure, name = f"claim {claim}: the labels of node {self.driver.node} cannot be read", self.driver.node
        try:
            return (await self._get(failure, NODES, name)).metadata.labels
        except NotFound:
            raise Refused(f"{failure}: there is no such Node: the kubelet will try again") from None

    async def _get(self, failure: str, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Raises NotFound, or else Refused with that beginning."""
        try:
            async with self._reads, asyncio.timeout(READ_LIMIT):
                return await self._client.get(resource, name, namespace)
        except NotFound:
            raise
        except (ApiError, OutcomeUnknown, TimeoutError) as error:
            why = str(error) or f"no answer within {READ_LIMIT:g} s"
            raise Refused(f"{failure} from the API server ({why}): the kubelet will try again") from None


def _leaving(uid: str, entries: Entries) -> CheckpointEntry | None:
    entry = entries.get(uid)
    return None if entry is None else entry.with_changes(phase="unpreparing")


def _check_state(claim: ClaimName, state: Any) -> None:
    try:
        orjson.dumps(dict(state))
    except (TypeError, ValueError) as error:
        raise Refused(
            f"claim {claim}: the driver returned a state that is not JSON ({error}): correct the driver"
        ) from None
