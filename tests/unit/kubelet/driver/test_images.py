"""Workspaces whose size is a limit: made with the file system's own tools, on loop devices that a test plays."""

import asyncio
import os
import shutil
import subprocess
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubelet.driver.test_file_systems import disk_of, lacking
from tests.unit.kubelet.driver.test_hostile_trees import fill
from tests.unit.kubelet.driver.workspace_folders import claim, data, driver, records

from parley_kubelet.driver import images, loops
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import HeldClaim, NodeClaim, Refused
from parley_kubelet.testing import NodeScenario, check_node_driver

MI = 1024**2

pytestmark = pytest.mark.skipif(
    shutil.which("mkfs.ext4", path="/usr/sbin:/sbin") is None, reason="e2fsprogs is not installed"
)


class Loops:
    """The node's loop devices, by label."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        self.callers: list[threading.Thread] = []

    def attach(self, file: Path, label: str) -> Path:
        self.callers.append(threading.current_thread())
        assert file.is_file()
        self.files.setdefault(label, file)
        return Path(f"/dev/loop{sorted(self.files).index(label)}")

    def detach(self, label: str) -> None:
        self.callers.append(threading.current_thread())
        self.files.pop(label, None)

    def hold(self, label: str) -> int | None:
        """A descriptor by which a test sees that the device of that label is kept open."""
        if label not in self.files:
            return None
        return os.open(self.files[label], os.O_RDONLY | os.O_CLOEXEC)

    def held(self) -> list[str]:
        """The labels of the devices that are open in this process."""
        links = (link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
        opened = [path for path in links if path in self.files.values()]
        return sorted(label for label, file in self.files.items() for path in opened if path == file)


@pytest.fixture(autouse=True)
def attached(monkeypatch: pytest.MonkeyPatch) -> Loops:
    found = Loops()
    monkeypatch.setattr(loops, "available", lambda: True)
    monkeypatch.setattr(loops, "attach", found.attach)
    monkeypatch.setattr(loops, "detach", found.detach)
    monkeypatch.setattr(loops, "hold", found.hold)
    return found


def limited(name: str, size: int = 16 * MI, **more: Any) -> NodeClaim[Any]:
    return claim(name, bytes=size, enforce="Image", **more)


def disk(root: Path, name: str) -> Path:
    return root / "data" / f"id-of-{name}" / "disk"


def disks(root: Path) -> list[Path]:
    return list(root.rglob("disk"))


def change(file: Path, command: str) -> None:
    subprocess.run(["debugfs", "-w", "-R", command, str(file)], capture_output=True, check=True)


def said(file: Path, command: str) -> str:
    done = subprocess.run(["debugfs", "-R", command, str(file)], capture_output=True, text=True, check=True)
    return done.stdout


async def test_it_keeps_the_promises_of_a_node_driver(tmp_path: Path, attached: Loops) -> None:
    await check_node_driver(
        NodeScenario(
            make=lambda: driver(tmp_path),
            claims=(limited("a"), claim("b"), limited("c", generated=True)),
            left=lambda: (data(tmp_path), records(tmp_path), sorted(attached.files)),
        )
    )


async def test_containers_get_a_file_system_of_just_that_size(tmp_path: Path) -> None:
    owner = {"uid": 1000, "gid": 2000, "mode": "2770"}
    prepared = await driver(tmp_path).prepare(limited("a", 20 * MI, owner=owner))
    assert prepared.edits.cdi()["mounts"] == [
        {
            "hostPath": "/dev/loop0",
            "containerPath": "/workspace",
            "options": ["rw", "nosuid", "nodev"],
            "type": "ext4",
        }
    ]
    file = disk(tmp_path, "a")
    found = file.stat()
    assert found.st_size == 20 * MI
    assert found.st_blocks * 512 >= 20 * MI, "the room is taken from the disk at once"
    assert found.st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    root = said(file, "stat /")
    assert "Mode:  02770" in root
    assert "User:  1000   Group:  2000" in root
    assert "lost+found" not in said(file, "ls /")


@pytest.mark.skipif(lacking("btrfs"), reason="makes and mounts a file system of btrfs")
async def test_others_who_fill_the_disk_leave_it_room_to_be_written_again(tmp_path: Path) -> None:
    with disk_of("btrfs", tmp_path, size=128 * MI) as root:
        await driver(root).prepare(limited("a", 16 * MI))
        file = disk(root, "a")

        def write() -> None:
            with file.open("r+b") as content:
                for _ in range(2):
                    content.write(os.urandom(MI))
                os.fsync(content.fileno())

        write()
        with pytest.raises(OSError, match="No space left"):
            fill(root, MI)
        write()
        write()


async def test_no_power_cut_takes_back_whose_its_root_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs flush what they write before their last change; it is never made again."""
    flush, flushed = os.fsync, dict[str, bytes]()

    def noted(descriptor: int) -> None:
        flush(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file():
            flushed[path.name] = sha256(path.read_bytes()).digest()

    monkeypatch.setattr(os, "fsync", noted)
    await driver(tmp_path).prepare(limited("a", owner={"uid": 1000, "gid": 2000, "mode": "2770"}))
    assert flushed == {"disk": sha256(disk(tmp_path, "a").read_bytes()).digest()}


async def test_the_event_loop_waits_for_no_program_and_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attached: Loops
) -> None:
    begin, programs = subprocess.Popen.__init__, list[threading.Thread]()

    def begun(process: Any, *given: Any, **named: Any) -> None:
        programs.append(threading.current_thread())
        begin(process, *given, **named)

    monkeypatch.setattr(subprocess.Popen, "__init__", begun)
    node, mine = driver(tmp_path), limited("a")
    await node.prepare(mine)
    await node.unprepare(HeldClaim(mine, {}))
    assert len(programs) == 4
    assert len(attached.callers) == 2
    assert threading.main_thread() not in [*programs, *attached.callers]


async def test_read_only(tmp_path: Path) -> None:
    prepared = await driver(tmp_path).prepare(limited("a", readOnly=True))
    assert prepared.edits.mounts[0].options == ("ro", "nosuid", "nodev")


async def test_its_content_stays_for_the_next_pod(tmp_path: Path, attached: Loops) -> None:
    node, mine = driver(tmp_path), limited("a")
    await node.prepare(mine)
    change(disk(tmp_path, "a"), "mkdir kept")
    await node.unprepare(HeldClaim(mine, {}))
    assert attached.files == {}, "nobody uses it"
    await node.prepare(mine)
    assert "kept" in said(disk(tmp_path, "a"), "ls /")
    assert attached.files == {"id-of-a": disk(tmp_path, "a")}


async def test_devices_of_held_claims_are_kept_open_so_that_nobody_else_can_free_them(
    tmp_path: Path, attached: Loops
) -> None:
    node, mine, other = driver(tmp_path), limited("a"), limited("b")
    await node.prepare(mine)
    await node.prepare(other)
    assert attached.held() == ["id-of-a", "id-of-b"]
    await node.prepare(mine)
    assert attached.held() == ["id-of-a", "id-of-b"], "each is open once"
    await node.unprepare(HeldClaim(mine, {}))
    assert attached.held() == ["id-of-b"]


async def followed(node: WorkspaceNode, *held: NodeClaim[Any]) -> None:
    """The driver has been asked for notices, and has looked for the devices of the held claims."""
    await node.notices([HeldClaim(claim, {}) for claim in held])
    assert node._following is not None
    await asyncio.to_thread(node._following.result)


async def test_devices_that_another_process_attached_are_kept_open_until_it_detaches_them(
    tmp_path: Path, attached: Loops
) -> None:
    before, node, mine = driver(tmp_path), driver(tmp_path), limited("a")
    await before.prepare(mine)
    await followed(before)
    assert attached.held() == []
    await followed(node, mine, claim("b"), limited("c"))
    assert attached.held() == ["id-of-a"]
    await followed(node, mine)
    assert attached.held() == ["id-of-a"], "each is open once"
    await followed(node)
    assert attached.held() == []


async def test_one_that_was_being_made_is_begun_anew(tmp_path: Path) -> None:
    half = tmp_path / "new" / "id-of-a"
    half.mkdir(parents=True)
    (half / "disk").write_bytes(b"half")
    await driver(tmp_path).prepare(limited("a"))
    assert disk(tmp_path, "a").stat().st_size == 16 * MI
    assert list((tmp_path / "new").iterdir()) == []


async def test_what_a_program_says_is_told_and_nothing_takes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "mkfs.ext4").write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    (tools / "mkfs.ext4").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with pytest.raises(Refused, match="no such luck: make room on that disk"):
        await driver(tmp_path).prepare(limited("a"))
    assert disks(tmp_path) == []


async def test_more_than_there_is_is_refused(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path)
    with pytest.raises(
        Refused,
        match=r"created: the disk has .* free, and the claim's size is .*: make room on that",
    ):
        await driver(tmp_path).prepare(limited("a", 2 * free.f_blocks * free.f_frsize))
    assert disks(tmp_path) == []


@pytest.mark.parametrize("lacks", ["devices", "programs"])
async def test_a_node_that_cannot_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    if lacks == "devices":
        monkeypatch.setattr(loops, "available", lambda: False)
    else:
        monkeypatch.setattr(images, "_program", lambda _: "")
    words = "make the plugin privileged" if lacks == "devices" else "are not in PATH"
    (offer,) = driver(tmp_path).devices()
    assert offer.attributes["images"] is False
    with pytest.raises(Refused, match=f"node n1 can't enforce its size .*{words}"):
        await driver(tmp_path).prepare(limited("a"))


async def test_its_size_is_not_watched(tmp_path: Path) -> None:
    node, mine = driver(tmp_path), limited("a")
    await node.prepare(mine)
    assert await node.notices([HeldClaim(mine, {})]) == []
    assert node._usage.names() == frozenset()


async def test_it_is_retained_as_a_whole(tmp_path: Path, attached: Loops) -> None:
    node, mine = driver(tmp_path), limited("a", retain=1)
    await node.prepare(mine)
    await node.unprepare(HeldClaim(mine, {}))
    await node.remove_data(mine)
    (kept,) = (tmp_path / "retained" / mine.namespace).iterdir()
    assert (kept / "disk").stat().st_size == 16 * MI
    assert attached.files == {}
