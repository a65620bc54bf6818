"""The node part of the workspace driver: directories stay when pods go, and go when their claim does."""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.kubelet.driver.workspace_folders import a_view, claim, data, driver, mode, records, trash

from parley.drivers.workspace import DISK, WorkspaceDriver
from parley_kubelet.configuration import Configuration, ConfigurationError, settings_of
from parley_kubelet.driver import trees, workspaces
from parley_kubelet.driver.workspace_handle import WorkspaceHandle, WorkspaceSettings
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import HeldClaim, Refused
from parley_kubelet.testing import NodeScenario, check_node_driver


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


async def test_what_a_crash_left_half_made_is_used_or_removed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "new" / f"id-of-{name}").mkdir(parents=True, mode=0o700)
    await driver(tmp_path).prepare(claim("a"))
    assert mode(tmp_path / "data" / "id-of-a") == 0o777
    await driver(tmp_path).remove_data(claim("b"))
    assert list((tmp_path / "new").iterdir()) == []


async def test_that_of_a_generated_claim_goes_with_its_pod(tmp_path: Path) -> None:
    await driver(tmp_path).prepare(claim("a", generated=True))
    await driver(tmp_path).unprepare(HeldClaim(claim("a", generated=True), None))
    assert data(tmp_path) == []


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
    with pytest.raises(ConfigurationError, match=rf"node.yaml: drivers\['workspace.parley.dev'\]\.{field}: "):
        settings_of(configuration, Path("node.yaml"), WorkspaceNode.name, WorkspaceSettings)


@pytest.mark.parametrize("earlier", [None, 0o711])
async def test_nobody_else_of_the_machine_runs_what_tasks_left_there(tmp_path: Path, earlier: int | None) -> None:
    """A task that is root can leave a program that makes root of any user who gets at it."""
    root, mine = tmp_path / "root", claim("a", generated=True, retain=1)
    folders = [root / name for name in ("data", "new", "trash", "retained")]
    for folder in folders if earlier else ():
        folder.mkdir(parents=True)
        folder.chmod(earlier or 0)
    node = driver(root)
    node.devices()
    await node.prepare(mine)
    await node.unprepare(HeldClaim(mine, {}))
    assert {folder.name: oct(folder.stat().st_mode & 0o777) for folder in folders} == {
        folder.name: "0o700" for folder in folders
    }
    node.devices()
