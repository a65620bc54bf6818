"""Changes of the checkpoint by many at once: in an order, in few writes, and a failed write fails its own."""

import asyncio
import errno
from pathlib import Path

import pytest

from parley_kubelet.state.checkpoint import CheckpointEntry, Entries
from parley_kubelet.state.durable import Folder
from parley_kubelet.state.records import SharedCheckpoint


class CountingFolder(Folder):
    """Counts writes, and fails them while `full`."""

    writes = 0
    full = False

    def write(self, name: str, data: bytes, mode: int = 0o600, *, flush: bool = True) -> None:
        self.writes += 1
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path / name))
        super().write(name, data, mode, flush=flush)


def entry(uid: str, name: str = "a") -> CheckpointEntry:
    return CheckpointEntry.of(
        uid=uid, namespace="team", name=name, phase="prepared", boot="b", results=(), devices=(), handle={}
    )


@pytest.fixture
def folder(tmp_path: Path) -> CountingFolder:
    return CountingFolder(tmp_path)


@pytest.fixture
def records(folder: CountingFolder) -> SharedCheckpoint:
    return SharedCheckpoint(folder, "n1")


async def test_a_hundred_changes_at_once_share_a_few_writes(
    folder: CountingFolder, records: SharedCheckpoint
) -> None:
    uids = [f"u{number}" for number in range(100)]
    await asyncio.gather(*(records.change(uid, lambda _, uid=uid: entry(uid)) for uid in uids))  # type: ignore[misc]
    assert set(await records.read()) == set(uids)
    assert folder.writes <= 2


async def test_each_decision_sees_what_was_decided_before_it(records: SharedCheckpoint) -> None:
    seen: list[int] = []

    def count(entries: Entries) -> CheckpointEntry:
        seen.append(len(entries))
        return entry(f"u{len(seen)}")

    await asyncio.gather(*(records.change(f"u{number}", count) for number in range(1, 6)))
    assert seen == [0, 1, 2, 3, 4]


async def test_a_decision_that_fails_leaves_the_others_and_its_entry_as_they_were(
    records: SharedCheckpoint,
) -> None:
    await records.change("u1", lambda _: entry("u1", "before"))

    def refuse(_: Entries) -> CheckpointEntry:
        raise ValueError("no")

    outcomes = await asyncio.gather(
        records.change("u1", refuse), records.change("u2", lambda _: entry("u2")), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [ValueError, CheckpointEntry]
    assert {uid: found.name for uid, found in (await records.read()).items()} == {"u1": "before", "u2": "a"}


async def test_a_write_that_fails_is_told_to_those_who_changed_something(
    folder: CountingFolder, records: SharedCheckpoint
) -> None:
    kept = await records.change("u1", lambda _: entry("u1"))
    folder.full = True
    outcomes = await asyncio.gather(
        records.change("u1", lambda entries: entries["u1"]),
        records.change("u2", lambda _: entry("u2")),
        records.read(),
        return_exceptions=True,
    )
    assert (outcomes[0], type(outcomes[1]), dict(outcomes[2])) == (kept, OSError, {"u1": kept})  # type: ignore[arg-type]
    folder.full = False
    assert set(await records.read()) == {"u1"}


async def test_a_change_that_changes_nothing_is_not_written(
    folder: CountingFolder, records: SharedCheckpoint
) -> None:
    await records.change("u1", lambda _: entry("u1"))
    await records.change("u1", lambda entries: entries["u1"])
    await records.change("u2", lambda _: None)
    assert folder.writes == 1


async def test_whoever_does_not_wait_any_more_hinders_nobody(records: SharedCheckpoint) -> None:
    impatient = asyncio.create_task(records.change("u1", lambda _: entry("u1")))
    patient = asyncio.create_task(records.change("u2", lambda _: entry("u2")))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    assert set(await records.read()) == {"u1", "u2"}
