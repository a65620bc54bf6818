"""The checkpoint for concurrent calls: decisions are serialized, and their writes batched.

A decision sees all decisions before it, of this process or of a second one with the same folder, and is recorded
before the next one is made. Waiting decisions are made together and written once, so that a hundred claims at once
cost two writes instead of two hundred. The disk is used in a thread, so that the kubelet's calls are answered
meanwhile.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from parley_kubelet.state.checkpoint import Checkpoint, CheckpointEntry, Entries
from parley_kubelet.state.durable import Folder

Decision = Callable[[Entries], CheckpointEntry | None]
"""Returns the claim's new checkpoint entry, None to remove it; an exception leaves it as it is. Runs once, in a
thread, where it may also write or remove files of the claim."""


def checkpoint_thread() -> Executor:
    """A thread for one checkpoint, started at once: drivers' hooks may occupy all threads of the event loop, and
    the machine may later be unable to start another."""
    thread = ThreadPoolExecutor(1, "checkpoint")
    thread.submit(int).result()
    return thread


@dataclass(slots=True)
class _Change:
    """A waiting decision for one claim, and the future of its outcome. `decide` is None to only read: then the
    outcome is all entries."""

    uid: str
    decide: Decision | None
    done: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class SharedCheckpoint:
    """The checkpoint entries of one driver on one node. `thread` uses the disk; None for the event loop's
    threads."""

    def __init__(self, folder: Folder, node: str, thread: Executor | None = None) -> None:
        self._folder = folder
        self._checkpoint = Checkpoint(folder, node)
        self._thread = thread
        self._waiting: list[_Change] = []
        self._writer: asyncio.Task[None] | None = None
        self.errors = 0
        """How many times the checkpoint could not be read or written."""

    @property
    def cached(self) -> Entries:
        """The entries as last read or written by this process, without reading the disk."""
        return self._checkpoint.cached

    def read_now(self) -> Entries:
        """All entries; blocks. Raises CheckpointError or OSError."""
        with self._folder.locked():
            return self._checkpoint.read()

    async def read(self) -> Entries:
        """All entries, read from the disk. Raises CheckpointError or OSError."""
        entries: Entries = await self._submit(_Change("", None))
        return entries

    async def change(self, uid: str, decide: Decision) -> CheckpointEntry | None:
        """Record the entry that `decide` returns for the claim; returns it when it is on the disk.

        Raises what `decide` raises, CheckpointError, or OSError if the checkpoint could not be written: then the
        old entry stands.
        """
        entry: CheckpointEntry | None = await self._submit(_Change(uid, decide))
        return entry

    async def _submit(self, change: _Change) -> Any:
        self._waiting.append(change)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        try:
            return await asyncio.shield(change.done)
        except asyncio.CancelledError:
            # else the change might be made when another process, as in a rolling update, already handles the claim
            await asyncio.wait({change.done})
            raise

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, self._apply, batch)
            for change, outcome in zip(batch, outcomes, strict=True):
                _resolve(change.done, outcome)

    def _apply(self, batch: list[_Change]) -> list[Any]:
        """The outcome of each change: an entry or None, all entries, or an error."""
        try:
            with self._folder.locked():
                return self._apply_locked(batch)
        except Exception as error:
            self.errors += 1
            return [error] * len(batch)

    def _apply_locked(self, batch: list[_Change]) -> list[Any]:
        before = self._checkpoint.read()
        entries = dict(before)
        outcomes = [_decide(change.uid, change.decide, entries) for change in batch if change.decide]
        after, failed = self._write_changed(before, entries)
        decided = iter(outcomes)
        return [
            after if change.decide is None else _outcome(next(decided), before.get(change.uid), failed)
            for change in batch
        ]

    def _write_changed(self, before: Entries, entries: Entries) -> tuple[Entries, OSError | None]:
        """Write the entries if they changed. Returns those that are on the disk then, and the error, if any."""
        if entries == before:
            return before, None
        try:
            return self._checkpoint.write(entries), None
        except OSError as error:
            self.errors += 1
            return self._checkpoint.read(), error


def _decide(uid: str, decide: Decision, entries: dict[str, CheckpointEntry]) -> CheckpointEntry | Exception | None:
    try:
        entry = decide(entries)
    except Exception as error:
        return error
    if entry is not None:
        entries[uid] = entry
    else:
        entries.pop(uid, None)
    return entry


def _outcome(
    outcome: CheckpointEntry | Exception | None, before: CheckpointEntry | None, failed: OSError | None
) -> CheckpointEntry | Exception | None:
    """The outcome of a decision: a failed write is an error only for decisions that changed their entry."""
    return outcome if failed is None or outcome is before or isinstance(outcome, Exception) else failed


def _resolve(done: asyncio.Future[Any], outcome: Any) -> None:
    if done.done():
        return
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
