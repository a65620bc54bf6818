"""What tasks can make of their workspaces on some file systems, with no capability: it goes with the claim."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.kubelet.driver.workspace_folders import claim, data, driver, trash

from parley_kubelet.driver import trees
from parley_kubelet.hooks import HeldClaim


@contextmanager
def disk_of(kind: str, folder: Path, *options: str, size: int = 400 * 1024**2) -> Iterator[Path]:
    """A file system of that kind, in a file of so many bytes."""
    place, file = folder / "disk", folder / "file"
    place.mkdir()
    with file.open("wb") as content:
        content.truncate(size)
    subprocess.run([f"mkfs.{kind}", "-q", *options, file], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", file, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def subvolume(parent: Path, name: str) -> Path:
    """A new one of btrfs (linux/btrfs.h)."""
    with trees.opened(parent) as directory:
        fcntl.ioctl(directory, 0x5000940E, bytearray(struct.pack("=q4088s", 0, name.encode())))
    return parent / name


def snapshot(source: Path, parent: Path, name: str) -> None:
    """A read-only one of a subvolume."""
    with trees.opened(source) as shown, trees.opened(parent) as directory:
        wanted = struct.pack("=qQQ32s4040s", shown, 0, 2, b"", name.encode())
        fcntl.ioctl(directory, 0x50009417, bytearray(wanted))


def belongs_to_a_project(folder: Path, project: int) -> None:
    """The directory and what is made in it counts for a project's quota, as after `chattr +P -p`."""
    with trees.opened(folder) as directory:
        attributes = bytearray(28)
        fcntl.ioctl(directory, 0x801C581F, attributes)
        flags, extent, extents, _, *rest = struct.unpack("=5I8s", attributes)
        fcntl.ioctl(directory, 0x401C5820, struct.pack("=5I8s", flags | 0x200, extent, extents, project, *rest))


def lacking(kind: str) -> bool:
    """Whether this machine can't make and mount such a file system. `make machine` installs the programs."""
    program = shutil.which(f"mkfs.{kind}", path="/usr/sbin:/sbin")
    known = Path("/proc/filesystems").read_text().split() if Path("/proc/filesystems").exists() else []
    return os.getuid() != 0 or program is None or kind not in known


@pytest.mark.skipif(lacking("btrfs"), reason="makes and mounts a file system of btrfs")
async def test_subvolumes_that_pods_made_go_with_their_workspace(tmp_path: Path) -> None:
    with disk_of("btrfs", tmp_path) as root:
        part = driver(root)
        await part.prepare(claim("a"))
        (root / "data" / "id-of-a" / "x" / "y").mkdir(parents=True)
        volume = subvolume(root / "data" / "id-of-a" / "x" / "y", "volume")
        (volume / "a" / "b" / "c").mkdir(parents=True)
        (volume / "a" / "b" / "file").touch()
        (subvolume(volume / "a" / "b", "inner") / "d" / "e").mkdir(parents=True)
        snapshot(volume, volume / "a", "read-only")
        await part.remove_data(claim("a"))
        assert (data(root), trash(root)) == ([], [])


@pytest.mark.skipif(lacking("xfs"), reason="makes and mounts a file system of XFS")
@pytest.mark.parametrize("projects", [(7,), (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)])
async def test_a_workspace_that_its_pods_gave_to_projects_of_quotas_goes(
    tmp_path: Path, projects: tuple[int, ...]
) -> None:
    """Whoever owns a directory can do so, with no capability."""
    with disk_of("xfs", tmp_path) as root:
        part = driver(root)
        await part.prepare(claim("a"))
        folder = root / "data" / "id-of-a"
        (folder / "d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d").mkdir(parents=True)
        for project in projects:
            belongs_to_a_project(folder, project)
            folder = folder / "d"
        await part.remove_data(claim("a"))
        assert (data(root), trash(root)) == ([], [])


@pytest.mark.skipif(lacking("xfs"), reason="makes and mounts a file system of XFS")
@pytest.mark.parametrize("ends", ["removed", "retained"])
async def test_a_workspace_that_its_pods_took_out_of_the_quota_of_all_workspaces_ends(
    tmp_path: Path, ends: str
) -> None:
    """An administrator bounds all workspaces by a project: what is made below the root belongs to it."""
    with disk_of("xfs", tmp_path) as root:
        belongs_to_a_project(root, 7)
        part = driver(root)
        ended = claim("a", retain=1 if ends == "retained" else 0)
        await part.prepare(ended)
        (root / "data" / "id-of-a" / "file").write_text("left")
        belongs_to_a_project(root / "data" / "id-of-a", 8)
        await part.remove_data(ended)
        left = [path.read_text() for path in root.glob("retained/*/*/file")]
        assert (data(root), trash(root), left) == ([], [], ["left"] if ends == "retained" else [])


def write_on(path: Path, size: int) -> None:
    """In writes of so many bytes, until that fails."""
    with path.open("ab", 0) as file:
        while True:
            file.write(bytes(size))


@pytest.mark.skipif(lacking("ext4"), reason="makes and mounts a file system of ext4")
@pytest.mark.parametrize("first", ["named", "generated", "view"])
async def test_one_that_filled_the_disk_to_the_last_block_is_retained(tmp_path: Path, first: str) -> None:
    with disk_of("ext4", tmp_path, "-m", "0", size=16 * 1024**2) as root:
        part, one = driver(root), claim("a", retain=1, generated=first == "generated")
        if first == "view":
            await part.prepare(claim("v", workspace="id-of-a", source="uid-of-a"))
        await part.prepare(one)
        for size in (64 * 1024, 512):
            with pytest.raises(OSError, match="No space left"):
                write_on(root / "data" / "id-of-a" / "file", size)
        await part.unprepare(HeldClaim(one, None))
        await part.remove_data(one)
        assert (data(root), len([*root.glob("retained/team/a.*")])) == ([], 1)


class Encryption:
    """A key of its file system, as any process may add one, and remove it (linux/fscrypt.h)."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        argument = bytearray(struct.pack("=II32sII32x64s", 2, 0, b"", 64, 0, os.urandom(64)))
        with trees.opened(disk) as directory:
            fcntl.ioctl(directory, 0xC0506617, argument)
        self._key = bytes(argument[8:24])

    def encrypt(self, folder: Path) -> None:
        """The directory, which is empty, and all that will be in it."""
        with trees.opened(folder) as directory:
            fcntl.ioctl(directory, 0x800C6613, bytearray(struct.pack("=5B3x16s", 2, 1, 4, 3, 0, self._key)))

    def lock(self) -> None:
        """Nobody reads names there any more."""
        with trees.opened(self._disk) as directory:
            fcntl.ioctl(directory, 0xC0406618, bytearray(struct.pack("=II32s24x", 2, 0, self._key)))


def knows_no_encryption() -> bool:
    return lacking("ext4") or not Path("/sys/fs/ext4/features/encryption").exists()


@pytest.mark.skipif(knows_no_encryption(), reason="makes and mounts a file system of ext4 that encrypts")
@pytest.mark.parametrize("place", ["", "sub/sub"])
async def test_a_workspace_that_its_pods_encrypted_goes_without_their_key(tmp_path: Path, place: str) -> None:
    """Any task can do so, with no capability, where the file system was made with `encrypt`."""
    with disk_of("ext4", tmp_path, "-O", "encrypt") as root:
        part = driver(root)
        await part.prepare(claim("a"))
        folder = root / "data" / "id-of-a" / place
        folder.mkdir(parents=True, exist_ok=True)
        key = Encryption(root)
        key.encrypt(folder)
        (folder / "/".join(["d"] * 100)).mkdir(parents=True)
        (folder / "d/d/d/file").touch()
        key.lock()
        await part.remove_data(claim("a"))
        assert (data(root), trash(root)) == ([], [])
