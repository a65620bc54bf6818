"""The node part of the workspace driver: directories stay when pods go, and go when their claim does."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from parley.drivers.workspace import DISK, WorkspaceDriver
from parley_kubelet.configuration import Configuration, ConfigurationError, settings_of
from parley_kubelet.driver import measuring, trees, workspaces
from parley_kubelet.driver.usage import DiskUsage
from parley_kubelet.driver.workspace_handle import WorkspaceHandle, WorkspaceSettings
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import DeviceName, HeldClaim, NodeClaim, Refused
from parley_kubelet.testing import NodeScenario, check_node_driver, node_claim


def driver(root: Path, **settings: Any) -> WorkspaceNode:
    mine = {"uid": os.getuid(), "gid": os.getgid(), **settings}
    return WorkspaceNode("n1", WorkspaceSettings(root=root, **mine))


def claim(name: str, **more: Any) -> NodeClaim[Any]:
    handle = {
        "workspace": f"id-of-{name}",
        "bytes": 1,
        "mountPath": "/workspace",
        "variable": f"WORKSPACE_{name.upper()}_PATH",
        **more,
    }
    return node_claim(WorkspaceNode, name, handle, DeviceName("n1", DISK))


def data(root: Path) -> list[str]:
    folder = root / "data"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def records(root: Path) -> list[str]:
    """Of generated claims."""
    return sorted(path.name for path in root.glob("generated/*"))


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o7777


def trash(root: Path) -> list[Path]:
    return list((root / "trash").iterdir())


async def test_it_keeps_the_promises_of_a_node_driver(tmp_path: Path) -> None:
    await check_node_driver(
        NodeScenario(
            make=lambda: driver(tmp_path),
            claims=(claim("a"), claim("b"), claim("c", generated=True)),
            left=lambda: (data(tmp_path), records(tmp_path)),
        )
    )


async def test_both_parts_agree_about_the_handle(tmp_path: Path) -> None:
    assert WorkspaceNode.name == WorkspaceDriver.name
    assert workspaces.DISK == DISK
    assert [offer.name for offer in driver(tmp_path).devices()] == [DISK]


async def test_where_the_disk_is_not_mounted_nothing_is_offered_made_or_taken_for_removed(tmp_path: Path) -> None:
    root, disk = tmp_path / "root", tmp_path / "disk"
    root.mkdir()
    (root / ".disk").touch()
    marked = partial(driver, root, marker=".disk")
    for name in ("a", "b"):
        await marked().prepare(claim(name, generated=name == "b"))
    root.rename(disk)
    root.mkdir()
    assert marked().devices() == ()
    words = f"claim team/c: the disk of {root} is not mounted, {root}/.disk is missing: mount it, then restart"
    with pytest.raises(Refused, match=words):
        await marked().prepare(claim("c"))
    with pytest.raises(OSError, match="is not mounted"):
        await marked().remove_data(claim("a"))
    with pytest.raises(OSError, match="is not mounted"):
        await marked().unprepare(HeldClaim(claim("b", generated=True), None))
    assert list(root.iterdir()) == []

    root.rmdir()
    disk.rename(root)
    assert [offer.name for offer in marked().devices()] == [DISK]
    await marked().remove_data(claim("a"))
    assert data(root) == ["id-of-b"]


@pytest.mark.parametrize("marker", [".", "..", "a/b", "/a"])
def test_a_marker_is_the_name_of_a_file(marker: str) -> None:
    with pytest.raises(ValidationError, match="marker"):
        WorkspaceSettings(marker=marker)


async def test_a_class_says_whose_its_directories_are(tmp_path: Path) -> None:
    owner = {"uid": os.getuid(), "gid": os.getgid(), "mode": "2750"}
    await driver(tmp_path, mode="0700").prepare(claim("a", owner=owner))
    assert mode(tmp_path / "data" / "id-of-a") == 0o2750


async def test_what_a_pod_leaves_the_next_one_finds(tmp_path: Path) -> None:
    first = await driver(tmp_path).prepare(claim("a"))
    (mount,) = first.edits.mounts
    assert (mount.host_path, mount.container_path) == (str(tmp_path / "data" / "id-of-a"), "/workspace")
    assert mount.options == ("rbind", "rw", "nosuid", "nodev")
    assert first.edits.env == {"WORKSPACE_A_PATH": "/workspace"}
    folder = tmp_path / "data" / "id-of-a"
    assert mode(folder) == 0o777
    (folder / "file").write_text("left")
    os.chmod(folder, 0o700)  # noqa: PTH101
    await driver(tmp_path).unprepare(HeldClaim(claim("a"), None))
    again = await driver(tmp_path).prepare(claim("a"))
    assert again.edits == first.edits
    assert (folder / "file").read_text() == "left"
    assert mode(folder) == 0o700


async def test_it_goes_with_its_claim_and_nothing_else_does(tmp_path: Path) -> None:
    for name in ("a", "b"):
        await driver(tmp_path).prepare(claim(name))
        (tmp_path / "data" / f"id-of-{name}" / "sub").mkdir()
    await driver(tmp_path).remove_data(claim("a"))
    assert data(tmp_path) == ["id-of-b"]
    assert trash(tmp_path) == []
    await driver(tmp_path).remove_data(claim("a"))
    await driver(tmp_path).remove_data(claim("never"))
    assert data(tmp_path) == ["id-of-b"]


@pytest.mark.parametrize("retain", [0, 1])
async def test_no_power_cut_brings_back_what_is_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retain: int
) -> None:
    mine, flush = claim("a", retain=retain), os.fsync
    await driver(tmp_path).prepare(mine)
    flushed = dict[Path, list[str]]()

    def noted(descriptor: int) -> None:
        flush(descriptor)
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed[folder] = [path.name for path in folder.iterdir()]

    monkeypatch.setattr(os, "fsync", noted)
    await driver(tmp_path).remove_data(mine)
    assert flushed == {tmp_path / "data": []}


async def test_a_removal_that_failed_has_not_removed_it_also_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver(tmp_path).prepare(claim("a"))
    (tmp_path / "data" / "id-of-a" / "file").touch()

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        for _ in range(2):
            with pytest.raises(PermissionError):
                await driver(tmp_path).remove_data(claim("a"))
        await driver(tmp_path).remove_data(claim("b"))
    assert len(trash(tmp_path)) == 1
    await driver(tmp_path).remove_data(claim("a"))
    assert trash(tmp_path) == []


async def test_removals_leave_the_threads_that_record_calls_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, node = threading.Event(), driver(tmp_path)
    monkeypatch.setattr(trees, "remove", lambda *_: go_on.wait())
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    for name in ("a", "b", "c", "d"):
        await node.prepare(claim(name))
    removals = [asyncio.create_task(node.remove_data(claim(name))) for name in ("a", "b", "c", "d")]
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: "recorded") == "recorded"
        assert not any(removal.done() for removal in removals)
    finally:
        go_on.set()
        await asyncio.gather(*removals)


async def test_a_namespace_whose_removals_take_long_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, node, remove = threading.Event(), driver(tmp_path), trees.remove

    def slow(parent: int, name: str, seconds: float) -> None:
        if name.startswith("id-of-slow"):
            go_on.wait()
        remove(parent, name, seconds)

    monkeypatch.setattr(trees, "remove", slow)
    mine, others = [claim(f"slow{number}") for number in range(4)], replace(claim("a"), namespace="other")
    for one in (*mine, others):
        await node.prepare(one)
    removals = [asyncio.create_task(node.remove_data(one)) for one in mine]
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
            await node.remove_data(others)
        assert not any(removal.done() for removal in removals)
    finally:
        go_on.set()
        await asyncio.gather(*removals)
    assert (data(tmp_path), trash(tmp_path)) == ([], [])


def test_what_comes_to_the_trash_waits_for_one_that_takes_long_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, removed, remove = driver(tmp_path), list[tuple[str, bool]](), trees.remove
    folder = tmp_path / "trash"
    for name in ("slow.1", "slow.2", "slow.3"):
        (folder / name).mkdir(parents=True)

    def slow(parent: int, name: str, seconds: float) -> None:
        removed.append((name, is_long := seconds > 10))
        if is_long:
            (folder / f"after.{name}").mkdir()
        if name.startswith("slow"):
            raise TimeoutError(110, "still something in it")
        remove(parent, name, seconds)

    monkeypatch.setattr(trees, "remove", slow)
    node.devices()
    node._sweeper.join()
    first, rest = removed[:3], removed[3:]
    assert sorted(first) == [("slow.1", False), ("slow.2", False), ("slow.3", False)]
    turns = [[(name, True), (f"after.{name}", False)] for name, _ in first]
    assert rest == [one for turn in turns for one in turn]


async def test_a_directory_that_is_being_made_is_not_emptied_as_trash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, other = trees.make, driver(tmp_path)

    def swept(*given: Any) -> None:
        make(*given)
        other.devices()
        other._sweeper.join()

    monkeypatch.setattr(trees, "make", swept)
    await driver(tmp_path).prepare(claim("a"))
    assert data(tmp_path) == ["id-of-a"]


async def test_what_a_crash_left_half_made_is_used_or_removed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "new" / f"id-of-{name}").mkdir(parents=True, mode=0o700)
    await driver(tmp_path).prepare(claim("a"))
    assert mode(tmp_path / "data" / "id-of-a") == 0o777
    await driver(tmp_path).remove_data(claim("b"))
    assert list((tmp_path / "new").iterdir()) == []


async def test_what_cannot_be_removed_keeps_nothing_else_in_the_trash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, node = trees.remove, driver(tmp_path)
    for name in ("x.1", "y.1", "z.1"):
        (tmp_path / "trash" / name).mkdir(parents=True)

    def busy(parent: int, name: str, seconds: float) -> None:
        if name == "y.1":
            raise OSError(16, "DeviceName or resource busy")
        remove(parent, name, seconds)

    monkeypatch.setattr(trees, "remove", busy)
    node.devices()
    node._sweeper.join()
    assert [path.name for path in trash(tmp_path)] == ["y.1"]


async def test_that_of_a_generated_claim_goes_with_its_pod(tmp_path: Path) -> None:
    await driver(tmp_path).prepare(claim("a", generated=True))
    await driver(tmp_path).unprepare(HeldClaim(claim("a", generated=True), None))
    assert data(tmp_path) == []


async def test_what_a_crash_left_in_the_trash_is_removed_by_the_next_process(tmp_path: Path) -> None:
    await driver(tmp_path).prepare(claim("a"))
    (tmp_path / "trash" / "half" / "sub").mkdir(parents=True)
    (tmp_path / "trash" / "half" / "file").touch()
    driver(tmp_path).devices()
    async with asyncio.timeout(60):
        while trash(tmp_path):  # noqa: ASYNC110 - a thread sets no event of ours
            await asyncio.sleep(0.01)
    assert data(tmp_path) == ["id-of-a"]


@pytest.mark.skipif(os.getuid() != 0, reason="gives directories to others")
async def test_it_is_its_owners_once_and_what_these_do_with_it_stays(tmp_path: Path) -> None:
    given = claim("a", owner={"uid": 1234, "gid": 5678, "mode": "0770"})
    await driver(tmp_path).prepare(given)
    made = tmp_path / "data" / "id-of-a"
    assert (made.stat().st_uid, made.stat().st_gid) == (1234, 5678)
    os.chown(made, 1, 2)
    await driver(tmp_path).prepare(given)
    assert (made.stat().st_uid, made.stat().st_gid) == (1, 2)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="gives up a right that root has")
def test_a_group_has_what_is_made_in_it_also_without_the_right_to_say_so_of_foreign_groups(tmp_path: Path) -> None:
    """The plugin's pod does not have that right; what a crash left half made is another group's already."""
    script = (
        "import sys; from pathlib import Path; from parley_kubelet.driver import trees\n"
        "with trees.opened(Path(sys.argv[1])) as folder:\n"
        "    for _ in range(2): trees.make(folder, 'made', 0o2770, (0, 2000))"
    )
    program = ["setpriv", "--bounding-set=-fsetid", "--inh-caps=-fsetid", sys.executable, "-c", script]
    subprocess.run([*program, tmp_path], check=True)
    assert mode(tmp_path / "made") == 0o2770
    assert (tmp_path / "made").stat().st_gid == 2000


async def test_one_that_is_read_only_is_mounted_so(tmp_path: Path) -> None:
    (mount,) = (await driver(tmp_path).prepare(claim("a", readOnly=True))).edits.mounts
    assert mount.options == ("rbind", "ro", "nosuid", "nodev")


def retained(root: Path) -> dict[str, list[str]]:
    """By namespace, the claims, oldest first."""
    found = sorted((root / "retained").glob("*/*"), key=lambda path: path.name.rpartition(".")[2])
    by_namespace: dict[str, list[str]] = {}
    for path in found:
        by_namespace.setdefault(path.parent.name, []).append(path.name.split(".id-of-")[0])
    return by_namespace


def a_view(name: str, of: str, **more: Any) -> NodeClaim[Any]:
    return claim(name, workspace=f"id-of-{of}", source=f"uid-of-{of}", readOnly=True, mountPath="/inputs", **more)


@pytest.mark.parametrize("generated", [False, True])
async def test_a_view_has_the_others_directory_for_reading_and_leaves_it(tmp_path: Path, generated: bool) -> None:
    node, view = driver(tmp_path), a_view("view", "a", generated=generated)
    await node.prepare(claim("a"))
    (tmp_path / "data" / "id-of-a" / "file").write_text("result")
    (mount,) = (await node.prepare(view)).edits.mounts
    assert (mount.host_path, mount.container_path) == (str(tmp_path / "data" / "id-of-a"), "/inputs")
    assert "ro" in mount.options
    await node.unprepare(HeldClaim(view, None))
    await node.remove_data(view)
    assert data(tmp_path) == ["id-of-a"]
    assert (tmp_path / "data" / "id-of-a" / "file").read_text() == "result"
    await node.remove_data(claim("a"))
    assert data(tmp_path) == []


async def test_one_that_is_retained_stays_where_no_claim_finds_it(tmp_path: Path) -> None:
    kept = claim("a", retain=2, bytes=3 * 1024**3)
    await driver(tmp_path).prepare(kept)
    (tmp_path / "data" / "id-of-a" / "file").write_text("result")
    for _ in range(2):
        await driver(tmp_path).remove_data(kept)
    (place,) = (tmp_path / "retained" / "team").iterdir()
    assert place.name.startswith(f"a.id-of-a.{3 * 1024**3}.")
    assert (place / "file").read_text() == "result"
    await driver(tmp_path).prepare(kept)
    assert list((tmp_path / "data" / "id-of-a").iterdir()) == [], "the same claim starts over"
    assert trash(tmp_path) == []


async def test_of_a_namespace_the_newest_stay_and_others_are_not_touched(tmp_path: Path) -> None:
    node = driver(tmp_path)
    for namespace in ("team", "other"):
        for name in "abcd":
            one = replace(claim(f"{name}", retain=2, workspace=f"id-of-{name}-{namespace}"), namespace=namespace)
            await node.prepare(one)
            await node.remove_data(one)
    assert retained(tmp_path) == {"team": ["c", "d"], "other": ["c", "d"]}
    (tmp_path / "retained" / "team" / "by-hand").mkdir()
    one = claim("e", retain=1)
    await node.prepare(one)
    await node.remove_data(one)
    node.devices()
    node._sweeper.join()
    assert retained(tmp_path) == {"other": ["c", "d"], "team": ["e", "by-hand"]}
    assert trash(tmp_path) == []


@pytest.mark.parametrize("newest", ["20991231T235959999999Z", "99991231T235959999999Z", "99999999T999999999999Z"])
async def test_the_newest_stay_also_where_the_clock_was_put_back(tmp_path: Path, newest: str) -> None:
    place = tmp_path / "retained" / "team"
    (place / f"first.id-of-first.1.{newest}").mkdir(parents=True)
    for name in ("a", "b"):
        one = claim(name, retain=2)
        await driver(tmp_path).prepare(one)
        await driver(tmp_path).remove_data(one)
    kept = {"team": ["a", "b"]} if newest.startswith("2099") else {"team": ["b", "first"]}
    assert retained(tmp_path) == kept


async def test_that_of_a_generated_claim_can_be_retained_too(tmp_path: Path) -> None:
    one = claim("a", generated=True, retain=1)
    await driver(tmp_path).prepare(one)
    await driver(tmp_path).unprepare(HeldClaim(one, None))
    assert retained(tmp_path) == {"team": ["a"]}


async def test_what_is_retained_takes_room(tmp_path: Path) -> None:
    node = driver(tmp_path, size="10Gi")
    for name, size in (("a", 3), ("b", 4)):
        one = claim(name, retain=9, bytes=size * 1024**3)
        await node.prepare(one)
        await node.remove_data(one)
    assert node.devices()[0].capacity == {"size": str(3 * 1024**3)}
    shutil.rmtree(next((tmp_path / "retained" / "team").glob("b.*")))
    assert node.devices()[0].capacity == {"size": str(7 * 1024**3)}


def anywhere(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(f"**/{pattern}"))


@pytest.mark.parametrize("name", ["..", ".", "../../x", "/etc", "a/../../b", "x" * 253, "A B\n", ""])
async def test_names_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    root = tmp_path / "deep" / "root"
    one = replace(claim("a", retain=1), namespace=name, name=name)
    await driver(root).prepare(one)
    await driver(root).remove_data(one)
    (found,) = anywhere(tmp_path, "*id-of-a.*")
    assert found.parent.parent == root / "retained"


async def notices(node: WorkspaceNode, *held: NodeClaim[Any]) -> dict[str, tuple[str, str]]:
    """What it has to say about claims, once everything is measured."""
    await node.notices([HeldClaim(one, None) for one in held])
    node._usage.wait(10)
    found = await node.notices([HeldClaim(one, None) for one in held])
    return {notice.claim.name: (notice.reason, notice.message) for notice in found}


@pytest.mark.parametrize("more", [{}, {"generated": True}, {"retain": 1}])
async def test_nothing_is_told_or_remembered_of_one_that_was_removed(tmp_path: Path, more: dict[str, Any]) -> None:
    node, large = driver(tmp_path), claim("large", bytes=1024, **more)
    await node.prepare(large)
    (tmp_path / "data" / "id-of-large" / "file").write_bytes(bytes(100_000))
    assert set(await notices(node, large)) == {"large"}
    assert set(await notices(node)) == {"large"}, "it is kept, and its last user is gone"
    await node.unprepare(HeldClaim(large, {}))
    await node.remove_data(large)
    assert await notices(node) == {}
    assert (node._usage.names(), node._measured) == (frozenset(), {})


async def test_what_is_measured_is_listed_once_for_all_of_thousands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, names, listed = driver(tmp_path), DiskUsage.names, list[int]()

    def counted(usage: DiskUsage) -> frozenset[str]:
        found = names(usage)
        listed.append(len(found))
        return found

    monkeypatch.setattr(DiskUsage, "names", counted)
    await notices(node, *(claim(f"c{number}") for number in range(10)))
    assert listed == [10, 10]


async def test_who_uses_more_than_its_size_is_told_with_both_figures(tmp_path: Path) -> None:
    node, size = driver(tmp_path), 2 * 1024**2
    large, small = claim("large", bytes=size), claim("small", bytes=size)
    for one in (large, small):
        await node.prepare(one)
        (tmp_path / "data" / one.handle.workspace / "file").write_bytes(bytes(size - 16 * 1024))
    assert await notices(driver(tmp_path), large, small) == {}
    (tmp_path / "data" / "id-of-large" / "more").write_bytes(bytes(size))
    told = {
        "large": (
            "OverSize",
            "it uses 3.98Mi of the disk of node n1, more than its size of 2Mi, and takes that from others: remove "
            "files, or recreate the claim with the size that it needs",
        )
    }
    other = driver(tmp_path)
    assert await notices(other, large, small, a_view("view", "large", bytes=size)) == told
    assert await notices(other, small) == told, "it is kept, and its last user is gone"
    await other.remove_data(large)
    assert await notices(other, large, small) == {}


async def test_who_cannot_be_measured_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "DEEPEST", 1)
    node, deep = driver(tmp_path), claim("deep", bytes=1024**3)
    await node.prepare(deep)
    (tmp_path / "data" / "id-of-deep" / "a" / "b" / "c").mkdir(parents=True)
    ((reason, message),) = (await notices(node, deep)).values()
    assert reason == "SizeUnknown"
    assert "at least of the disk of node n1, of its size of 1Gi; directories more than" in message


def test_it_publishes_what_the_settings_say_or_most_of_the_disk(tmp_path: Path) -> None:
    (offer,) = driver(tmp_path, size="2Gi").devices()
    assert offer.capacity == {"size": str(2 * 1024**3)}
    (offer,) = driver(tmp_path).devices()
    disk = os.statvfs(tmp_path)
    assert 0 < int(offer.capacity["size"]) < disk.f_blocks * disk.f_frsize


async def test_a_disk_that_is_full_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trees, "make", full)
    with pytest.raises(
        Refused,
        match=r"claim team/a: its directory .*id-of-a cannot be created: No space left "
        r"on",
    ):
        await driver(tmp_path).prepare(claim("a"))


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../x", "/etc", "a\0", "-a", "x" * 65, "a\n"])
def test_a_handle_that_names_another_place_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        WorkspaceHandle(workspace=name, bytes=1, mount_path="/workspace", variable="A")


@pytest.mark.parametrize(
    ("field", "value"),
    [("root", "relative"), ("root", "/a/../b"), ("root", "/"), ("size", "many"), ("size", "0"), ("size", "-1Gi")],
)
def test_settings_that_cannot_be_served_are_refused_at_the_start(field: str, value: str) -> None:
    configuration = Configuration(drivers={WorkspaceNode.name: {field: value}})
    with pytest.raises(ConfigurationError, match=rf"node.yaml: drivers\['workspace.parley.dev'\]\.{field}="):
        settings_of(configuration, Path("node.yaml"), WorkspaceNode.name, WorkspaceSettings)
