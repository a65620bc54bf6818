"""Prepares and unprepares claims on this node: calls the driver's hooks and keeps the checkpoint and CDI files.

    prepare     done already if prepared in this boot for the claim's current allocation. Otherwise read the claim
                live, let the driver admit it, record the phase preparing, call the driver, write the CDI
                specification, and record what the driver returned
    unprepare   record the phase unpreparing, call the driver, remove the CDI specification, and remove the entry
                last; the claim is not read

    (no entry) --> preparing --> prepared --> unpreparing --> (no entry)
    prepare again, if not prepared, or in an earlier boot, or for another allocation: --> preparing

A crash at any point leaves either nothing or an entry, and the kubelet's next call finishes the work. Calls for
one claim are serialized in their order; a call that the kubelet gives up continues to its end. A call whose driver
is not done in time is cancelled, and other calls for the claim fail until it has ended. `handle` reads what was
allocated for a claim; the driver and `cdi` decide what a container gets.
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

import structlog

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, NODES, Resource
from parley.kube.cancelling import uncancelled
from parley.kube.client import ApiError, Client, NotFound, OutcomeUnknown
from parley_kubelet.cdi.specifications import Specifications
from parley_kubelet.claims.handle import NodeAllocation, node_allocation, selects_nodes_by_labels
from parley_kubelet.claims.restoring import restore_all, restore_missing
from parley_kubelet.claims.typed import TypedEntries, check_state
from parley_kubelet.hooks import HeldClaim, NodeClaim, NodeDriver, Refused
from parley_kubelet.state.checkpoint import CheckpointEntry, Entries, HeldDevice
from parley_kubelet.state.durable import Folder
from parley_kubelet.state.records import SharedCheckpoint

LIMIT: Final = 40.0
"""Seconds for a call, including the wait for another one of the same claim; the kubelet gives up after 45."""

ENDING: Final = 1.0
"""Seconds that a cancelled call has to end; its claim stays locked until it does."""

CLOSING: Final = 2.0
"""Seconds to wait at shutdown for cancelled calls: a disk that does not answer may hold some for ever."""

READ_LIMIT: Final = 20.0
"""Seconds to read a claim."""

PUBLISHING: Final = 20.0
"""Seconds to wait until room that is left is published."""

TYPED_AT_ONCE: Final = 128
"""Entries that are converted for a hook before other tasks of the event loop run."""

READS_AT_ONCE: Final = 4
"""Claims that are read at the same time: each takes a connection of 0.3 MB; with 10 of them a hundred claims at
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
    """Returns at once: the driver's devices are not published."""


@dataclass(frozen=True, slots=True)
class ProcessServices:
    """What the process provides for one driver's claims. `thread` is for the checkpoint, None for the event
    loop's; `published` returns when the driver's current devices are published in ResourceSlices."""

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
        process: ProcessServices = ProcessServices(),
    ) -> None:
        self.driver = driver
        self._client = client
        self._state = state
        self._records = SharedCheckpoint(state, driver.node, process.thread)
        self._thread = process.thread
        self._published = process.published
        self._specifications = Specifications(cdi, driver.name)
        self.boot = boot
        self._limit = limit
        self._typed = TypedEntries(driver)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
        self._calls_by_claim: Counter[str] = Counter()
        self._calls: set[asyncio.Task[Any]] = set()
        self.released = asyncio.Event()
        """Set whenever a claim was unprepared; the waiter clears it."""

    @property
    def cached(self) -> Entries:
        """The checkpoint entries as last read or written, without reading the disk."""
        return self._records.cached

    @property
    def checkpoint_errors(self) -> int:
        """How many times the checkpoint could not be read or written."""
        return self._records.errors

    def blocked(self) -> str:
        """What keeps the driver's calls from ending, as the driver reports; "" if nothing."""
        try:
            return self.driver.blocked()
        except Exception as error:
            return f"its hook blocked() failed: {type(error).__name__}: {error}"

    def restore(self) -> Entries:
        """Reconcile the CDI folder with the checkpoint, and return the checkpoint's entries. Blocks.

        Claims that another process is handling now, as in a rolling update, are left to it. Raises
        CheckpointError or OSError; then nothing may be prepared.
        """
        return restore_all(self._state, self._records, self._specifications)

    async def restore_missing(self) -> None:
        """Write CDI files of prepared claims again that somebody removed. Raises CheckpointError or OSError."""
        restore = partial(restore_missing, self._state, self._records, self._specifications)
        await asyncio.get_running_loop().run_in_executor(self._thread, restore)

    async def entries(self) -> Entries:
        """All checkpoint entries. Raises CheckpointError or OSError."""
        return await self._records.read()

    async def held(self) -> tuple[HeldClaim[Any], ...]:
        """All held claims, as the driver's hooks get them, without those that this driver version can't parse."""
        entries, found = tuple((await self._records.read()).values()), list[HeldClaim[Any]]()
        for at in range(0, len(entries), TYPED_AT_ONCE):
            found += self._typed.all(entries[at : at + TYPED_AT_ONCE])
            await asyncio.sleep(0)  # 14,000 entries take a second, in which the kubelet's calls would wait
        return tuple(found)

    async def holds(self, uid: str) -> bool:
        """Whether the claim is held here, or may soon be: a call for it is under way in this or another process.
        Raises CheckpointError or OSError."""
        if uid in self._calls_by_claim or self._state.is_name_locked(uid) or uid in await self._records.read():
            return True
        return uid in self._calls_by_claim  # a call may have come while the checkpoint was read

    async def prepare(self, claim: ClaimName) -> CheckpointEntry:
        """Prepare the claim. Raises Refused, CheckpointError, OSError, or what the driver raises."""
        return await self._serialized(claim, self._prepare)

    async def unprepare(self, claim: ClaimName) -> None:
        """Unprepare the claim; no error if it is not held. Raises Refused, CheckpointError, OSError, or what the
        driver raises."""
        await self._serialized(claim, self._unprepare)
        self.released.set()

    async def unprepare_orphan(self, claim: ClaimName, expected: CheckpointEntry | None) -> bool:
        """Unprepare an orphan if its entry is the `expected` one, and the kubelet has not called meanwhile;
        returns whether that was done. Raises what `unprepare` does."""
        done: bool = await self._serialized(claim, partial(self._unprepare_orphan, expected))
        if done:
            self.released.set()
        return done

    async def remove_data(self, claim: ClaimName, devices: Iterable[HeldDevice], handle: Any) -> None:
        """Have the driver remove the data of a claim that has ended. Raises Refused, or what the driver raises."""
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
        """Claims that have data on this node by the driver's own records. Raises what the driver raises."""
        with uncancelled(self.driver.name):
            return await self.driver.left()

    async def close(self) -> None:
        """Cancel calls that are still under way; their claims have entries in the checkpoint."""
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=CLOSING)

    async def _serialized(self, claim: ClaimName, work: Callable[[ClaimName], Coroutine[Any, Any, T]]) -> T:
        call = asyncio.create_task(self._with_claim_locked(claim, work))
        self._calls.add(call)
        self._calls_by_claim[claim.uid] += 1
        call.add_done_callback(partial(self._forget_call, claim.uid))
        await asyncio.wait({call}, timeout=self._limit + ENDING)
        if not call.done():
            raise self._timeout_error(claim)
        return call.result()

    def _forget_call(self, uid: str, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        self._calls_by_claim -= Counter({uid: 1})
        if not call.cancelled():
            call.exception()  # marks it as retrieved: the caller may have given up

    def _timeout_error(self, claim: ClaimName) -> Refused:
        why = self.blocked() or "see the log of parley-kubelet on this node"
        return Refused(
            f"claim {claim}: driver {self.driver.name} is not done after {self._limit:g} s: {why};"
            " the kubelet will try again"
        )

    async def _with_claim_locked(self, claim: ClaimName, work: Callable[[ClaimName], Awaitable[T]]) -> T:
        limit, turn = asyncio.timeout(self._limit), self._locks.setdefault(claim.uid, asyncio.Lock())
        try:
            async with limit, turn, self._state.locked_name(claim.uid):
                return await work(claim)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._timeout_error(claim) from None

    async def _prepare(self, claim: ClaimName) -> CheckpointEntry:
        before = (await self._records.read()).get(claim.uid)
        if before is not None and before.phase == "prepared" and await self._is_current(claim, before):
            await self._records.change(claim.uid, partial(self._decide_prepared, before))
            return before
        entry = await self._record_preparing(claim, before)
        held = self._typed.held(entry)
        with uncancelled(self.driver.name):
            prepared = await self.driver.prepare(held.claim)
        check_state(str(claim), prepared.state)
        done = entry.with_changes(phase="prepared", edits=prepared.edits, state=dict(prepared.state))
        await self._records.change(claim.uid, partial(self._decide_prepared, done))
        return done

    async def _is_current(self, claim: ClaimName, prepared: CheckpointEntry) -> bool:
        """Whether a prepared entry is for this boot and the claim's current allocation. It may have been allocated
        here again if the controller considered the node lost and waited for no receipt: its Node was deleted, and
        the restarted kubelet created another. True if the claim can't be read or is not for this node."""
        if prepared.boot != self.boot:
            return prepared.boot == ""
        try:
            found = await self._allocation(claim)
        except Refused:
            return True
        entry = self._entry(claim, found, prepared)
        return (entry.handle, entry.devices) == (prepared.handle, prepared.devices)

    def _decide_prepared(self, entry: CheckpointEntry, _: Entries) -> CheckpointEntry:
        """The decision to record the entry, once its CDI file is written."""
        self._specifications.write(entry)
        return entry

    async def _record_preparing(self, claim: ClaimName, before: CheckpointEntry | None) -> CheckpointEntry:
        """Records the entry with the phase preparing, and returns it. First unprepares an entry for another
        allocation: the claim may have been allocated again while this machine was down or considered lost."""
        found = await self._allocation(claim)
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

    async def _allocation(self, claim: ClaimName) -> NodeAllocation:
        """The claim's current allocation on this node, read live. Raises Refused."""
        read, name = await self._read_claim(claim), self.driver.node
        labels = await self._node_labels(claim) if selects_nodes_by_labels(read) else None
        return node_allocation(read, uid=claim.uid, driver=self.driver.name, node=name, labels=labels)

    def _entry(self, claim: ClaimName, found: NodeAllocation, before: CheckpointEntry | None) -> CheckpointEntry:
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
        leaving = await self._records.change(claim.uid, partial(_decide_unpreparing, claim.uid))
        if leaving is not None:
            await self._unprepare_held(self._typed.held(leaving))
        else:  # the checkpoint may have been lost: see the driver's own records
            for left in await self.left():
                if left.uid == claim.uid:
                    await self._unprepare_held(HeldClaim(left, None))
        await self._records.change(claim.uid, partial(self._decide_gone, claim.uid))

    async def _unprepare_held(self, held: HeldClaim[Any]) -> None:
        """Unprepare by the driver's hook, and publish data that stays: else its room would be promised again."""
        with uncancelled(self.driver.name):
            await self.driver.unprepare(held)
        if not self.driver.keeps_room(held.claim):
            return
        try:
            async with asyncio.timeout(PUBLISHING):
                await self._published()
        except TimeoutError:
            raise Refused(
                f"claim {held.claim}: its data stays on node {self.driver.node}, and what room is left there is"
                " not in its ResourceSlices yet: see 'devices are not published' in the log of parley-kubelet on"
                " this node; the kubelet will try again"
            ) from None

    async def _unprepare_orphan(self, expected: CheckpointEntry | None, claim: ClaimName) -> bool:
        if (await self._records.read()).get(claim.uid) != expected:
            return False
        await self._unprepare(claim)
        return True

    def _decide_gone(self, uid: str, _: Entries) -> None:
        """The decision to remove the entry, once its CDI file is removed."""
        self._specifications.remove(uid)

    async def _read_claim(self, claim: ClaimName) -> BuiltinClaim:
        try:
            return await self._get(f"claim {claim}: cannot be read", BUILTIN_CLAIMS, claim.name, claim.namespace)
        except NotFound:
            raise Refused(
                f"claim {claim}: does not exist: delete the pod, so that it is recreated with its claims"
            ) from None

    async def _node_labels(self, claim: ClaimName) -> Mapping[str, str]:
        """The labels that this node has now. Raises Refused."""
        failure, name = f"claim {claim}: the labels of node {self.driver.node} cannot be read", self.driver.node
        try:
            return (await self._get(failure, NODES, name)).metadata.labels
        except NotFound:
            raise Refused(f"{failure}: there is no such Node: the kubelet will try again") from None

    async def _get(self, failure: str, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Gets an object. Raises NotFound, or Refused with a message that begins with `failure`."""
        try:
            async with self._reads, asyncio.timeout(READ_LIMIT):
                return await self._client.get(resource, name, namespace)
        except NotFound:
            raise
        except (ApiError, OutcomeUnknown, TimeoutError) as error:
            why = str(error) or f"no answer within {READ_LIMIT:g} s"
            raise Refused(f"{failure} from the API server ({why}): the kubelet will try again") from None


def _decide_unpreparing(uid: str, entries: Entries) -> CheckpointEntry | None:
    entry = entries.get(uid)
    return None if entry is None else entry.with_changes(phase="unpreparing")
