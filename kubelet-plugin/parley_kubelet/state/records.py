"""The checkpoint as many use it at once: decisions one after the other, writes shared.

A decision sees everything that was decided before it, by this process or by a second one over the same folder,
and nothing comes between it and its record. All decisions that wait are taken together and written once, so that a
hundred claims at once cost two writes and not two hundred. The disk is used in a thread: the kubelet's questions
are answered meanwhile.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from parley_kubelet.state.checkpoint import Checkpoint, CheckpointEntry, Entries
from parley_kubelet.state.durable import Folder

Decision = Callable[[Entries], CheckpointEntry | None]
"""Returns what the checkpoint shall hold for the claim, None for nothing; an exception leaves it as it is. Runs in
a thread, where it may see to files of the claim, and is called once."""


def own_thread() -> Executor:
    """A thread for one checkpoint, there from now on: hooks of drivers may hold all of the event loop's, and later
    the machine may have no room for another."""
    thread = ThreadPoolExecutor(1, "checkpoint")
    thread.submit(int).result()
    return thread


@dataclass(slots=True)
class _Change:
    """`decide` is None for a mere read, and then `done` gets all entries."""

    uid: str
    decide: Decision | None
    done: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class SharedCheckpoint:
    """The entries of one driver on one node. `thread` uses the disk, one of the event loop's if it is None."""

    def __init__(self, folder: Folder, node: str, thread: Executor | None = None) -> None:
        self._folder = folder
        self._checkpoint = Checkpoint(folder, node)
        self._thread = thread
        self._waiting: list[_Change] = []
        self._writer: asyncio.Task[None] | None = None
        self.errors = 0
        """So often the checkpoint could not be read or written."""

    @property
    def known(self) -> Entries:
        """The entries as last read or written by this process; the disk is not asked."""
        return self._checkpoint.known

    def read_now(self) -> Entries:
        """All entries; blocks. Raises CheckpointError or OSError."""
        with self._folder.locked():
            return self._checkpoint.read()

    async def read(self) -> Entries:
        """All entries that are on the disk. Raises CheckpointError or OSError."""
        entries: Entries = await self._done(_Change("", None))
        return entries

    async def change(self, uid: str, decide: Decision) -> CheckpointEntry | None:
        """Record what `decide` returns for the claim; returns it when it is on the disk.

        Raises what `decide` raises, CheckpointError, or OSError if it could not be written: then the old entry
        stands.
        """
        entry: CheckpointEntry | None = await self._done(_Change(uid, decide))
        return entry

    async def _done(self, change: _Change) -> Any:
        self._waiting.append(change)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        try:
            return await asyncio.shield(change.done)
        except asyncio.CancelledError:
            # it would be made when another process, as in a rolling update, may already act for the claim
            await asyncio.wait({change.done})
            raise

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, self._apply, batch)
            for change, outcome in zip(batch, outcomes, strict=True):
                _settle(change.done, outcome)

    def _apply(self, batch: list[_Change]) -> list[Any]:
        """The outcome of each change: an entry or None, all entries, or the error."""
        try:
            with self._folder.locked():
                return self._applied(batch)
        except Exception as error:
            self.errors += 1
            return [error] * len(batch)

    def _applied(self, batch: list[_Change]) -> list[Any]:
        before = self._checkpoint.read()
        entries = dict(before)
        outcomes = [_decided(change.uid, change.decide, entries) for change in batch if change.decide]
        after, failed = self._written(before, entries)
        decided = iter(outcomes)
        return [
            after if change.decide is None else _recorded(next(decided), before.get(change.uid), failed)
            for change in batch
        ]

    def _written(self, before: Entries, entries: Entries) -> tuple[Entries, OSError | None]:
        """What the disk holds in the end, and why it is not what it should be."""
        if entries == before:
            return before, None
        try:
            return self._checkpoint.write(entries), None
        except OSError as error:
            self.errors += 1
            return self._checkpoint.read(), error


def _decided(
    uid: str, decide: Decision, entries: dict[str, CheckpointEntry]
) -> CheckpointEntry | Exception | None:
    try:
        entry = decide(entries)
    except Exception as error:
        return error
    if entry is not None:
        entries[uid] = entry
    else:
        entries.pop(uid, None)
    return entry


def _recorded(
    outcome: CheckpointEntry | Exception | None, before: CheckpointEntry | None, failed: OSError | None
) -> CheckpointEntry | Exception | None:
    """A write that failed is an error for those who changed something."""
    return outcome if failed is None or outcome is before or isinstance(outcome, Exception) else failed


def _settle(done: asyncio.Future[Any], outcome: Any) -> None:
    if done.done():
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
