"""Files that are whole or absent."""

import asyncio
import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from tests.unit.kubelet.driver.test_file_systems import disk_of, lacking

from parley_kubelet.state.durable import Disk, Folder


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "made" / "here")
    folder.write("a", b"first and long")
    folder.write("a", b"second", mode=0o644)
    assert folder.read("a") == b"second"
    assert (folder.path / "a").stat().st_mode & 0o777 == 0o644
    assert folder.names("") == ("a",)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        folder.write("a", b"cannot replace a folder")
    assert folder.names("") == ("a",)


def test_what_a_crash_left_is_swept(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a", b"kept")
    (tmp_path / ".parley-new-x").write_bytes(b"half")
    (tmp_path / "of-another-vendor.json").write_bytes(b"{}")
    folder.sweep()
    assert folder.names("") == ("a", "of-another-vendor.json")


def test_what_another_process_is_just_writing_is_not_swept(tmp_path: Path) -> None:
    sweeping = Thread(target=Folder(tmp_path).sweep)

    class SlowDisk(Disk):
        def rename(self, path: Path, target: Path) -> None:
            sweeping.start()
            sweeping.join(0.05)
            super().rename(path, target)

    Folder(tmp_path, disk=SlowDisk()).write("a", b"whole")
    sweeping.join()
    assert Folder(tmp_path).read("a") == b"whole"


def test_names_that_are_free_are_locked_the_others_left_out(tmp_path: Path) -> None:
    first, second, third = Folder(tmp_path), Folder(tmp_path), Folder(tmp_path)
    with (
        first.free_names_locked(["a"]) as mine,
        second.free_names_locked(["a", "b"]) as theirs,
        third.free_names_locked(["a", "b", "c"]) as rest,
    ):
        assert (*mine, *theirs, *rest) == ("a", "b", "c")
    assert not first.is_name_locked("a")


def test_a_file_that_is_gone_is_read_as_none_and_removed_without_error(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.remove("a")
    assert folder.read("a") is None


def test_the_lock_keeps_another_process_out(tmp_path: Path) -> None:
    attempt = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", attempt, str(tmp_path / "lock")]
    with Folder(tmp_path).locked():
        assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    assert subprocess.run(command, check=False).returncode == 0


async def test_a_name_is_for_one_at_a_time_and_other_names_are_free(tmp_path: Path) -> None:
    first, second = Folder(tmp_path), Folder(tmp_path)
    async with first.locked_name("a"):
        async with asyncio.timeout(60), second.locked_name("b"):
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), second.locked_name("a"):
                pass
    async with asyncio.timeout(60), second.locked_name("a"):
        pass


async def test_the_lock_of_a_name_goes_with_its_process(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from parley_kubelet.state.durable import Folder\n"
        "async def main():\n"
        "    async with Folder(Path(sys.argv[1])).locked_name('a'):\n"
        "        print('has it', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())"
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tmp_path), stdin=pipe, stdout=pipe
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"has it\n"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), Folder(tmp_path).locked_name("a"):
            pass
    process.kill()
    await process.communicate()
    async with asyncio.timeout(60), Folder(tmp_path).locked_name("a"):
        pass


def test_what_can_be_made_again_is_whole_too(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a", b"first", flush=False)
    folder.write("a", b"second", flush=False)
    assert folder.read("a") == b"second"
    assert folder.names("") == ("a",)


class NoBlocks(Disk):
    """A disk that has no room for another file."""

    def create(self, folder: Path, data: bytes, mode: int) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_has_room_in_the_spare_file(tmp_path: Path) -> None:
    Folder(tmp_path, spare=4096).write("file", b"before")
    full = Folder(tmp_path, disk=NoBlocks(), spare=4096)
    for content in (b"x" * 4096, b"small", b"less"):
        full.write("file", content, mode=0o640)
        assert full.read("file") == content
        assert len(Folder(tmp_path).read("file") or b"") <= 8192, "the spare file that the largest one needs"
    assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "spare"]


@pytest.mark.parametrize(("spare", "size"), [(0, 1), (4096, 4097)])
def test_without_a_spare_file_that_is_large_enough_a_full_disk_is_an_error(
    tmp_path: Path, spare: int, size: int
) -> None:
    Folder(tmp_path).write("file", b"before")
    full = Folder(tmp_path, disk=NoBlocks(), spare=spare)
    with pytest.raises(OSError, match="No space left"):
        full.write("file", b"x" * size)
    assert full.read("file") == b"before"


class Hogged(Disk):
    """Somebody takes each block that comes free before Parley does, once `hog` is set."""

    hog: Path | None = None

    def create(self, folder: Path, data: bytes, mode: int) -> Path:
        self._take()
        return super().create(folder, data, mode)

    def allocate(self, path: Path, size: int) -> None:
        self._take()
        super().allocate(path, size)

    def _take(self) -> None:
        if self.hog is None:
            return
        for size in (1024**2, 4096, 1):
            with suppress(OSError), self.hog.open("ab", buffering=0) as hog:
                while hog.write(bytes(size)):
                    pass


@pytest.mark.parametrize(("kind", "mebibytes"), [("ext4", 64), ("btrfs", 128)])
def test_a_full_disk_takes_one_version_after_the_other(tmp_path: Path, kind: str, mebibytes: int) -> None:
    if lacking(kind):
        pytest.skip(f"makes and mounts a file system of {kind}")
    with disk_of(kind, tmp_path, size=mebibytes * 1024**2) as place:
        hogged = Hogged()
        folder = Folder(place / "state", disk=hogged, spare=1024**2)
        folder.write("file", os.urandom(300_000).hex().encode())
        hogged.hog = place / "hog"
        for size in range(300_000, 290_000, -2500):
            content = os.urandom(size).hex().encode()
            folder.write("file", content)
            assert folder.read("file") == content


def test_a_spare_file_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    class Failing(NoBlocks):
        def overwrite(self, path: Path, data: bytes, mode: int) -> None:
            super().overwrite(path, data[:1], mode)
            raise OSError(errno.EIO, "Input/output error")

    Folder(tmp_path).write("file", b"before")
    failing = Folder(tmp_path, disk=Failing(), spare=4096)
    with pytest.raises(OSError, match="Input/output"):
        failing.write("file", b"after")
    assert failing.read("file") == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "spare"]
