"""Workspaces whose pods fight their removal, or fill the disk: nothing outside is touched, and it ends."""

import asyncio
import errno
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from tests.support.attacked import SWAPS, attacker, seen
from tests.unit.kubelet.driver.workspace_folders import claim, data, driver, trash

from parley_kubelet.driver import trees, workspaces
from parley_kubelet.hooks import HeldClaim, Refused

TURNS = int(os.environ.get("HOSTILE_TURNS", "200"))
FILES = int(os.environ.get("HOSTILE_FILES", "10000"))


def test_links_that_are_swapped_in_while_it_is_removed_lead_nowhere(tmp_path: Path, outside: Path) -> None:
    place, before = tmp_path / "place", seen(outside)
    place.mkdir()
    failures = 0
    with attacker(SWAPS, place, outside), trees.opened(place) as directory:
        for _ in range(TURNS):
            for folder in ("x/y/z", "sub/x/y/z", "sub/sub/x/y/z"):  # aside: we would follow links ourselves
                (place / "aside" / folder).mkdir(parents=True)
            (place / "aside").rename(place / "t")
            for _ in range(1000):
                try:
                    trees.remove(directory, "t")
                except OSError:
                    failures += 1  # it changed under our hands: what is left is removed by the next attempt
                if not trees.is_directory(directory, "t"):
                    break
            else:
                pytest.fail("never removed")
    assert seen(outside) == before
    assert (outside / "deep" / "file").read_text() == "canary"
    assert failures < TURNS * 10


def swapped(tree: Path) -> bool:
    """Whether the attacker has begun; `os.walk` takes it that directories go while it looks."""
    return any(name.endswith(".up") for _, folders, files in os.walk(tree) for name in (*folders, *files))


@pytest.mark.parametrize(
    ("place", "names"),
    [("data/id-of-a", ("t", "t/x", "file")), (".", ("data/id-of-a", "new/id-of-a", "data/id-of-a/t"))],
    ids=["by its pods", "by who may write to the root itself"],
)
async def test_links_that_are_swapped_in_while_it_is_prepared_lead_nowhere(
    tmp_path: Path, outside: Path, place: str, names: tuple[str, ...]
) -> None:
    """It is prepared, or that is refused; what is there again at the end can be used and removed."""
    root, before = tmp_path / "root", seen(outside)
    part, mine = driver(root), claim("a", owner={"uid": os.getuid(), "gid": os.getgid(), "mode": "2770"})
    await part.prepare(mine)
    for folder in (root / "data" / "id-of-a" / "t" / "x", root / "new"):
        folder.mkdir(parents=True, exist_ok=True)
    outcomes, longest = Counter[str](), 0.0
    with attacker(SWAPS, root / place, outside, *names):
        while not swapped(root / place):  # noqa: ASYNC110 - the attacker sets no event of ours
            await asyncio.sleep(0.01)
        for turn in range(TURNS):
            began = time.monotonic()
            try:
                mounted = await part.prepare(mine)
                await part.unprepare(HeldClaim(mine, None))
                outcomes[mounted.edits.mounts[0].host_path] += 1
            except Refused:
                outcomes["refused"] += 1
            longest = max(longest, time.monotonic() - began)
            if turn % 50 == 0:
                assert seen(outside) == before
    assert seen(outside) == before
    assert longest < 40
    assert sum(outcomes.values()) == TURNS
    assert set(outcomes) <= {str(root / "data" / "id-of-a"), *(["refused"] if place == "." else [])}


def test_devices_sockets_pipes_and_sparse_giants_go_like_files(tmp_path: Path, outside: Path) -> None:
    tree, before = tmp_path / "place" / "t", seen(outside)
    (tree / "sub").mkdir(parents=True)
    for folder in (tree, tree / "sub"):
        os.mkfifo(folder / "pipe")
        (folder / "null").touch()
        if os.getuid() == 0:
            os.mknod(folder / "disk", 0o060666, os.makedev(8, 0))
            os.mknod(folder / "memory", 0o020666, os.makedev(1, 1))
        with (folder / "giant").open("wb") as giant:
            giant.truncate(1 << 40)
    began = time.monotonic()
    with trees.opened(tree.parent) as directory:
        trees.remove(directory, "t")
    assert time.monotonic() - began < 40
    assert not tree.exists()
    assert seen(outside) == before


def test_a_great_many_files_in_many_directories_go(tmp_path: Path) -> None:
    tree = tmp_path / "place" / "t"
    for i in range(FILES // 100):
        (tree / f"{i % 50}" / f"{i}").mkdir(parents=True)
        for j in range(100):
            os.close(os.open(tree / f"{i % 50}" / f"{i}" / f"{j}", os.O_CREAT | os.O_WRONLY))
    with trees.opened(tree.parent) as directory:
        trees.remove(directory, "t")
    assert not tree.exists()


async def test_no_call_of_the_kubelets_waits_until_a_great_many_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, remove = threading.Event(), trees.remove

    def held_up(parent: int, name: str, seconds: float) -> None:
        go_on.wait()
        remove(parent, name, seconds)

    monkeypatch.setattr(trees, "remove", held_up)
    monkeypatch.setattr(workspaces, "_FIRST_TURN", 600.0)
    part, mine = driver(tmp_path), claim("a", generated=True)
    await part.prepare(mine)
    for i in range(FILES):
        os.close(os.open(tmp_path / "data" / "id-of-a" / f"{i}", os.O_CREAT | os.O_WRONLY))
    try:
        async with asyncio.timeout(60):
            await part.prepare(mine)
            await part.unprepare(HeldClaim(mine, None))
        assert (data(tmp_path), len(trash(tmp_path))) == ([], 1)
    finally:
        go_on.set()
    await asyncio.to_thread(part._sweeper.join)
    assert trash(tmp_path) == []


@contextmanager
def filler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whenever a file with the name of a weed is removed, there is another one: somebody else is as fast as we."""
    unlink = os.unlink

    def followed(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        if name.startswith("weed"):
            os.close(os.open(f"weed-{token_hex(8)}", os.O_CREAT | os.O_WRONLY, dir_fd=dir_fd))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", followed)
        yield


@pytest.mark.parametrize("place", ["weed", "sub/weed", "sub/sub/sub/weed"])
def test_a_tree_that_somebody_fills_while_it_is_removed_is_left_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "t" / place).parent.mkdir(parents=True)
    (tmp_path / "t" / place).touch()
    with trees.opened(tmp_path) as directory:
        with filler(monkeypatch), pytest.raises(TimeoutError, match=r"still something in it after 0\.3 s"):
            trees.remove(directory, "t", seconds=0.3)
        trees.remove(directory, "t")
    assert list(tmp_path.iterdir()) == []


async def test_who_fills_what_is_removed_holds_up_no_other_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many of them as are removed at a time."""
    monkeypatch.setattr(workspaces, "_TURN", 0.3)
    part, fought = driver(tmp_path), ("a", "b")
    for name in (*fought, "honest"):
        await part.prepare(claim(name))
    for name in fought:
        (tmp_path / "data" / f"id-of-{name}" / "weed").touch()
    with filler(monkeypatch):
        removals = [asyncio.create_task(part.remove_data(claim(name))) for name in fought]
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await part.remove_data(claim("honest"))
            outcomes = await asyncio.gather(*removals, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError, TimeoutError]
    assert data(tmp_path) == []
    for name in fought:
        await part.remove_data(claim(name))
    assert trash(tmp_path) == []


def files(tree: Path) -> list[str]:
    """The files by name alone: a removal moves directories."""
    return sorted(path.name for path in tree.rglob("*") if path.is_file())


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
@pytest.mark.parametrize("place", ["m", "sub/m", "sub/sub/m"])
def test_what_is_mounted_in_a_tree_is_not_removed_with_it(tmp_path: Path, outside: Path, place: str) -> None:
    tree = tmp_path / "t"
    (outside / "top").touch()
    before = seen(outside)
    (tree / "sub" / "sub").mkdir(parents=True)
    (tree / place).mkdir()
    for folder in ("", "sub", "sub/sub"):
        (tree / folder / "plain").touch()
    subprocess.run(["mount", "--bind", outside, tree / place], check=True)
    try:
        with trees.opened(tmp_path) as directory, pytest.raises(OSError, match=r"[Mm]ount|busy"):
            trees.remove(directory, "t")
        assert seen(outside) == before
        assert files(tree) == ["file", "top"]
    finally:
        (mounted,) = (path.parent.parent for path in tree.rglob("deep/file"))
        subprocess.run(["umount", mounted], check=True)
    with trees.opened(tmp_path) as directory:
        trees.remove(directory, "t")
    assert not tree.exists()
    assert seen(outside) == before


@pytest.mark.skipif(os.getuid() != 0, reason="sets the attributes of chattr(1)")
@pytest.mark.parametrize(("attribute", "victim"), [("i", "sub/stuck"), ("i", "stuck"), ("a", "sub"), ("i", "sub")])
def test_what_cannot_be_removed_keeps_nothing_else(tmp_path: Path, attribute: str, victim: str) -> None:
    tree = tmp_path / "t"
    for folder in ("", "sub", "other", "other/deeper", "sub/sub"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
        for name in ("a", "stuck", "z"):
            (tree / folder / name).touch()
    subprocess.run(["chattr", f"+{attribute}", tree / victim], check=True)
    try:
        with trees.opened(tmp_path) as directory, pytest.raises(PermissionError):
            trees.remove(directory, "t")
        kept = ["a", "a", "stuck", "stuck", "z", "z"] if victim == "sub" else ["stuck"]
        assert files(tree) == kept
    finally:
        subprocess.run(["chattr", "-R", f"-{attribute}", tree], check=True)
    with trees.opened(tmp_path) as directory:
        trees.remove(directory, "t")
    assert not tree.exists()


@contextmanager
def small_disk(folder: Path, *options: str) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, size: int) -> None:
    for i in range(1000):
        (folder / f"{i}").write_bytes(bytes(size))


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
@pytest.mark.parametrize("full", ["files", "bytes"])
async def test_a_disk_that_is_full_holds_up_nobody_for_good(tmp_path: Path, full: str) -> None:
    """Who finds no place for a directory says so; what is there can be used and removed, which makes place."""
    with small_disk(tmp_path / "disk", "size=256k", "nr_inodes=16") as root:
        part = driver(root)
        await part.prepare(claim("hog"))
        hoard = root / "data" / "id-of-hog"
        with pytest.raises(OSError, match="No space left"):
            fill(hoard, 0 if full == "files" else 64 * 1024)
        if full == "files":
            with pytest.raises(Refused, match="check whether the disk is full"):
                await part.prepare(claim("late"))
        else:
            await part.prepare(claim("late"))  # a directory of tmpfs needs no block
            with pytest.raises(OSError, match="No space left"):
                (root / "data" / "id-of-late" / "file").write_bytes(bytes(64 * 1024))
        assert (await part.prepare(claim("hog"))).edits.mounts
        await part.unprepare(HeldClaim(claim("hog"), None))
        await part.remove_data(claim("hog"))
        assert "id-of-hog" not in data(root)
        assert trash(root) == []
        await part.prepare(claim("late"))
        (root / "data" / "id-of-late" / "file").write_bytes(bytes(64 * 1024))


PARTS = ("sub/volume", "sub/volume/deep/volume")


def test_directories_that_cannot_be_moved_out_of_a_part_of_the_disk_are_removed_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a subvolume of btrfs, which itself can be moved: its user may make some."""
    for part in PARTS:
        (tmp_path / "t" / part / "a" / "b" / "c").mkdir(parents=True)
        (tmp_path / "t" / part / "a" / "b" / "file").touch()
    parts, rename = {(tmp_path / "t" / part).stat().st_ino for part in PARTS}, os.rename

    def part_of(directory: int) -> int:
        path = Path(f"/proc/self/fd/{directory}").readlink()
        inodes = (one.stat().st_ino for one in (path, *path.parents))
        return next((inode for inode in inodes if inode in parts), 0)

    def within_a_part(name: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        is_part = os.stat(name, dir_fd=src_dir_fd).st_ino in parts
        if not is_part and part_of(src_dir_fd) != part_of(dst_dir_fd):
            raise OSError(errno.EXDEV, "Invalid cross-device link", name)
        rename(name, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", within_a_part)
    with trees.opened(tmp_path) as directory:
        trees.remove(directory, "t")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a directory that is encrypted and whose key is gone."""

    def refused(name: str, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOKEY, "Required key not available", name)

    monkeypatch.setattr(os, "rename", refused)


@pytest.mark.usefixtures("nothing_moves")
def test_where_no_directory_can_be_moved_what_is_deep_is_removed_from_the_bottom(tmp_path: Path) -> None:
    for way in ("d", "e"):
        deep = tmp_path / "t" / "d/d/d" / "/".join([way] * 300)
        deep.mkdir(parents=True)
        for folder in (deep, *deep.parents[:300:7]):
            (folder / "file").touch()
            (folder / "empty").mkdir()
    (tmp_path / "t" / "shallow" / "a").mkdir(parents=True)
    with trees.opened(tmp_path) as directory:
        trees.remove(directory, "t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_moves")
@pytest.mark.skipif(os.getuid() != 0, reason="sets the attributes of chattr(1)")
@pytest.mark.parametrize("stuck", ["file", "folder/empty"])
def test_what_cannot_be_removed_at_the_bottom_is_named(tmp_path: Path, stuck: str) -> None:
    deep = tmp_path / "t" / "/".join(["d"] * 100)
    (deep / "folder" / "empty").mkdir(parents=True)
    (deep / "file").touch()
    kept = deep / stuck if stuck == "file" else (deep / stuck).parent
    subprocess.run(["chattr", "+i", kept], check=True)
    try:
        words = f"Operation not permitted: '{Path(stuck).name}'"
        with trees.opened(tmp_path) as directory, pytest.raises(OSError, match=words):
            trees.remove(directory, "t", 20)
    finally:
        subprocess.run(["chattr", "-i", kept], check=True)
    with trees.opened(tmp_path) as directory:
        trees.remove(directory, "t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_moves")
def test_a_walk_from_the_bottom_goes_no_higher_than_its_tree(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write there moves the directory that is just being emptied to the top of the tree."""
    deep = tmp_path / "t" / "/".join(["d"] * 100)
    deep.mkdir(parents=True)
    (deep / "file").touch()
    rmdir = os.rmdir
    moved: list[Path] = []

    def moves_it_away(name: str, *, dir_fd: int) -> None:
        if not moved and (path := Path(f"/proc/self/fd/{dir_fd}").readlink()).parts.count("d") == 90:
            moved.append(path)
            subprocess.run(["mv", path, tmp_path / "t" / "moved"], check=True)
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", moves_it_away)
    with trees.opened(tmp_path) as directory:
        trees.remove(directory, "t", 20)
    assert moved
    assert list(tmp_path.iterdir()) == [outside]
